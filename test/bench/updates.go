package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skipper/envoy"
	"skipper/test/bench/internal/proc"
	"skipper/test/bench/internal/report"
	"skipper/test/hollow"
	"skipper/xds"
)

const updatesIntro = `Endpoints come and go one by one, each step after the last one was acknowledged by all: a real Envoy, alone and with nine
stand-ins that only speak xDS. Skipper spreads them over 512 clusters (two families of 256); the rival is one cluster that holds
all, served by the same server. The time is from the change to the real Envoy's acknowledgement, of those that come; CPU is per step,
that of the controller's stand-in per step and Envoy. Load reports: Envoy's CPU without traffic, once a second and without. The
aims at 50,000: p50 5 ms, p99 25 ms, Envoy 5 ms and controller 1 ms of CPU, load reports 5 % of a core; at 50,000 within three
times of what it is at 1,000.

`

const (
	updateWarmUp = 10
	// updateIdle is how long Envoy's CPU without traffic is read.
	updateIdle = 20 * time.Second
	// updateStandIns stand beside the real Envoy.
	updateStandIns = 9
	// updateReports counts load reports that were taken.
	updateReports = "skipper_controller_load_reports_total"
)

// updateForm is a way to spread endpoints over clusters.
type updateForm struct {
	name   string
	shards int
}

func updateForms() []updateForm {
	return []updateForm{{"Skipper: 512 clusters", xds.DefaultShards}, {"one cluster", 1}}
}

// updateBench is one world: a controller's stand-in, an Envoy, and later more.
type updateBench struct {
	*field
	form              updateForm
	size              int
	addr, web         string
	controller, envoy *proc.Process
}

// measureUpdates measures every size in every form and returns the tables.
func measureUpdates(ctx context.Context, o options) (string, error) {
	steps := report.Table{Header: []string{"endpoints", "clusters", "Envoys", "samples", "p50 ms", "p99 ms", "Envoy's CPU ms/step", "controller's CPU ms/step and Envoy"}}
	idle := report.Table{Header: []string{"endpoints", "clusters", "Envoy without reports, % of a core", "with reports each second", "reports"}}
	for _, size := range o.updateEndpoints {
		for _, form := range updateForms() {
			if err := measureUpdateForm(ctx, o, form, size, &steps, &idle); err != nil {
				return "", fmt.Errorf("%d endpoints, %s: %w", size, form.name, err)
			}
		}
	}
	return steps.Markdown() + "\n" + idle.Markdown(), nil
}

func measureUpdateForm(ctx context.Context, o options, form updateForm, size int, steps, idle *report.Table) error {
	dir, err := os.MkdirTemp("", "skipper-bench-")
	if err != nil {
		return err
	}
	b := &updateBench{field: &field{dir: dir}, form: form, size: size}
	defer b.stop()
	if err := b.measure(ctx, o.updates, steps, idle); err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	return os.RemoveAll(dir)
}

func (b *updateBench) measure(ctx context.Context, n int, steps, idle *report.Table) error {
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := b.row(ctx, n, 1, steps); err != nil {
		return err
	}
	if err := b.reports(ctx, idle); err != nil {
		return err
	}
	if err := b.self(ctx, "stand-ins", "updates-envoys", b.addr, strconv.Itoa(updateStandIns)); err != nil {
		return err
	}
	return b.row(ctx, n, 1+updateStandIns, steps)
}

// start brings up the controller's stand-in and the Envoy.
func (b *updateBench) start(ctx context.Context) error {
	addr, err := freeAddrs(5)
	if err != nil {
		return err
	}
	b.addr, b.web = addr[0], "http://"+addr[1]
	if err := b.self(ctx, "controller", "updates-controller", addr[0], addr[1], strconv.Itoa(b.size), strconv.Itoa(b.form.shards)); err != nil {
		return err
	}
	b.controller = b.last()
	cfg := envoy.Default()
	cfg.NodeID, cfg.NodeCluster, cfg.ControllerPlaintext = updateNode, updateNode, true
	cfg.HTTPPort, cfg.ReadyPort, cfg.Admin = portOf(addr[2]), portOf(addr[3]), addr[4]
	cfg.Extproc = filepath.Join(b.dir, "nobody.sock") // there are no requests
	cfg.ControllerHost, cfg.ControllerPort = "127.0.0.1", portOf(addr[0])
	boot, err := envoy.Bootstrap(cfg)
	if err != nil {
		return err
	}
	text, err := envoy.YAML(boot)
	if err != nil {
		return err
	}
	b.envoy, err = b.field.envoy(ctx, "envoy", text)
	return err
}

// row measures updates that so many Envoys acknowledge.
func (b *updateBench) row(ctx context.Context, n, nodes int, t *report.Table) error {
	if err := b.all(ctx, nodes); err != nil {
		return err
	}
	if _, err := b.update(ctx, updateWarmUp, nodes); err != nil {
		return err
	}
	programs := []*proc.Process{b.envoy, b.controller}
	before, err := cpuOf(programs)
	if err != nil {
		return err
	}
	r, err := b.update(ctx, n, nodes)
	if err != nil {
		return err
	}
	after, err := cpuOf(programs)
	if err != nil {
		return err
	}
	each := func(i int) float64 { return (after[i] - before[i]).Seconds() * 1000 / float64(r.Total) }
	t.Add(strconv.Itoa(b.size), b.form.name, strconv.Itoa(nodes), strconv.Itoa(len(r.Added)),
		report.Millis(report.Percentile(r.Added, 0.5)), report.Millis(report.Percentile(r.Added, 0.99)),
		fmt.Sprintf("%.2f", each(0)), fmt.Sprintf("%.2f", each(1)/float64(nodes)))
	return nil
}

// all waits until so many Envoys have endpoints.
func (b *updateBench) all(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, updatePatience)
	defer cancel()
	return await(ctx, fmt.Sprintf("%d Envoys have endpoints", nodes), 100*time.Millisecond, func(ctx context.Context) (bool, error) {
		text, err := get(ctx, b.web+"/known")
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return strings.TrimSpace(text) == strconv.Itoa(nodes), nil
	})
}

func (b *updateBench) update(ctx context.Context, n, nodes int) (r updateRow, err error) {
	text, err := get(ctx, fmt.Sprintf("%s/update?n=%d&nodes=%d", b.web, n, nodes))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read what came of updates: %w", err)
	}
	if r.Total == 0 {
		return r, errors.New("no update was made")
	}
	return r, nil
}

// reports measures Envoy without traffic, before it reports its load and after.
func (b *updateBench) reports(ctx context.Context, t *report.Table) error {
	without, err := b.idle(ctx)
	if err != nil {
		return err
	}
	if _, err := get(ctx, b.web+"/reports"); err != nil {
		return err
	}
	before, err := hollow.Metric(ctx, b.web, updateReports, "")
	if err != nil {
		return err
	}
	with, err := b.idle(ctx)
	if err != nil {
		return err
	}
	after, err := hollow.Metric(ctx, b.web, updateReports, "")
	if err != nil {
		return err
	}
	t.Add(strconv.Itoa(b.size), b.form.name, fmt.Sprintf("%.1f", without), fmt.Sprintf("%.1f", with), fmt.Sprintf("%.0f", after[""]-before[""]))
	return nil
}

// idle is Envoy's share of a core, in percent.
func (b *updateBench) idle(ctx context.Context) (float64, error) {
	programs, began := []*proc.Process{b.envoy}, time.Now()
	before, err := cpuOf(programs)
	if err != nil {
		return 0, err
	}
	if err := pauseFor(ctx, updateIdle); err != nil {
		return 0, err
	}
	after, err := cpuOf(programs)
	if err != nil {
		return 0, err
	}
	return 100 * (after[0] - before[0]).Seconds() / time.Since(began).Seconds(), nil
}

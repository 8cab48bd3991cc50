// Package proc starts programs that outlive their starter, and finds and ends them again. Each
// has a record file with its process id and start time, so that a process id that the kernel
// gave to another program is never mistaken for it. Programs that lost their record are found
// by a mark in their environment.
package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// markName is the environment variable that every started program, and what it starts with
// its environment, carries.
const markName = "SKIPPER_LOCAL_RUN"

// poll is how often the end of a process is looked for.
const poll = 50 * time.Millisecond

// Spec is a program to start. It gets Env and nothing of the caller's environment, where a
// proxy's address, say, would reach it. Identity changes whenever a running one must be
// replaced.
type Spec struct {
	Name     string
	Argv     []string
	Env      []string
	Log      string
	Identity string
}

// Record is what is remembered about a started program. Started is in clock ticks since boot.
type Record struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	Started  uint64 `json:"started"`
	Identity string `json:"identity"`
}

// Table is the set of started programs, one record file each below Dir. Mark is the value of
// their environment mark, unique per cluster. One process at a time may change it.
type Table struct {
	Dir  string
	Mark string
}

// Start runs the program in a session of its own and records it. It does not wait.
func (t Table) Start(s Spec) error {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", s.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...) //nolint:noctx // it outlives the caller and its context
	cmd.Env = append(slices.Clone(s.Env), markName+"="+t.Mark)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	stat, err := readStat(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("look at %s: %w", s.Name, err)
	}
	return t.write(Record{Name: s.Name, PID: cmd.Process.Pid, Started: stat.Started, Identity: s.Identity})
}

func (t Table) write(r Record) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of %s: %w", r.Name, err)
	}
	temp := t.path(r.Name) + ".new"
	if err := os.WriteFile(temp, content, 0o644); err != nil {
		return fmt.Errorf("record %s: %w", r.Name, err)
	}
	return os.Rename(temp, t.path(r.Name))
}

func (t Table) path(name string) string { return filepath.Join(t.Dir, name+".json") }

// Running returns the record of a program that runs at this moment.
func (t Table) Running(name string) (Record, bool) {
	content, err := os.ReadFile(t.path(name))
	if err != nil {
		return Record{}, false
	}
	var r Record
	if err := json.Unmarshal(content, &r); err != nil {
		return Record{}, false
	}
	return r, alive(r)
}

// alive is false for a zombie, and for another program that got the same process id.
func alive(r Record) bool {
	stat, err := readStat(r.PID)
	return err == nil && !stat.Ended && stat.Started == r.Started
}

// Stop asks the named programs to end, all at once, kills those that have not ended within
// grace, and forgets them. Programs that do not run are fine.
func (t Table) Stop(ctx context.Context, grace time.Duration, names ...string) error {
	var records []Record
	for _, name := range names {
		if r, ok := t.Running(name); ok {
			records = append(records, r)
			_ = syscall.Kill(r.PID, syscall.SIGTERM)
		}
	}
	var errs []error
	for _, r := range end(ctx, records, grace) {
		errs = append(errs, fmt.Errorf("process %d (%s) does not end", r.PID, r.Name))
	}
	for _, name := range names {
		_ = os.Remove(t.path(name))
	}
	return errors.Join(errs...)
}

// end waits for the records for grace, then kills, and returns those that live on even so.
func end(ctx context.Context, records []Record, grace time.Duration) []Record {
	left := waitGone(ctx, records, grace)
	for _, r := range left {
		_ = syscall.Kill(r.PID, syscall.SIGKILL)
	}
	return waitGone(ctx, left, killGrace)
}

// killGrace is for the kernel to take a killed process apart.
const killGrace = 10 * time.Second

func waitGone(ctx context.Context, records []Record, limit time.Duration) []Record {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		records = living(records)
		if len(records) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return records
		case <-ticker.C:
		}
	}
}

func living(records []Record) []Record {
	var left []Record
	for _, r := range records {
		if alive(r) {
			left = append(left, r)
		}
	}
	return left
}

// KillAll kills these processes and waits for their end; it returns those that live on.
func KillAll(ctx context.Context, pids []int) []int {
	var records []Record
	for _, pid := range pids {
		if stat, err := readStat(pid); err == nil {
			records = append(records, Record{PID: pid, Started: stat.Started})
		}
	}
	var left []int
	for _, r := range end(ctx, records, 0) {
		left = append(left, r.PID)
	}
	return left
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	skipperpb "skipper/proto"
	"skipper/test/bench/internal/report"
	"skipper/test/hollow"
	"skipper/test/router"
)

// claimPatience bounds one claim, as a router's hold time does.
const claimPatience = 30 * time.Second

// claimTeam is one number of controllers, and what they achieved.
type claimTeam struct {
	cluster *hollow.Cluster
	client  skipperpb.ControllerServiceClient
	hangUp  func() error

	answered, written []float64 // claims per second: until the answer, until ready-at is written as well
	patched           []float64 // bare patches per second, in the same round
	claims            int
	owners            map[string]string // tenants by pod
	double            int
}

// measureClaims lets teams of one, two and three controllers claim pods of a
// hollow node in turn, round by round, each beside bare patches of as many clients.
func measureClaims(ctx context.Context, o options) (_ string, err error) {
	dir, err := os.MkdirTemp("", "skipper-bench-")
	if err != nil {
		return "", err
	}
	kube, binary, err := claimTools(ctx, dir)
	if err != nil {
		return "", err
	}
	var teams []*claimTeam
	defer func() {
		for _, t := range teams {
			err = errors.Join(err, t.disband(context.WithoutCancel(ctx)))
		}
	}()
	for n := 1; n <= 3; n++ {
		t, startErr := startTeam(ctx, hollow.ClusterConfig{
			Kube: kube, Kubeconfig: os.Getenv("KUBECONFIG"), Binary: binary, Dir: dir, Network: uint8(n), //nolint:gosec // 1 to 3
			Controllers: n, Pool: o.rounds*o.claims + o.claims/2, Args: []string{"--heartbeat-timeout=1h"},
		})
		teams = append(teams, t)
		if startErr != nil {
			return "", fmt.Errorf("start %d controllers, logs in %s: %w", n, dir, startErr)
		}
	}
	for round := range o.rounds {
		for _, t := range teams {
			if err := t.turn(ctx, kube, round, o.claims, o.claimClients); err != nil {
				return "", fmt.Errorf("claim with %d controllers, logs in %s: %w", len(t.cluster.Controllers), dir, err)
			}
		}
	}
	table, err := claimsTable(ctx, teams)
	return table, errors.Join(err, os.RemoveAll(dir))
}

func claimTools(ctx context.Context, dir string) (kubernetes.Interface, string, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, "", fmt.Errorf("read KUBECONFIG: %w", err)
	}
	cfg.QPS = -1 // the rival must not be held up by its own client
	kube, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, "bench"))
	if err != nil {
		return nil, "", fmt.Errorf("make Kubernetes client: %w", err)
	}
	binary, err := buildProgram(ctx, dir, "controller")
	if err != nil {
		return nil, "", err
	}
	return kube, binary, nil
}

// startTeam returns a team to disband even with an error.
func startTeam(ctx context.Context, cfg hollow.ClusterConfig) (*claimTeam, error) {
	t := &claimTeam{hangUp: func() error { return nil }, owners: map[string]string{}}
	var err error
	if t.cluster, err = hollow.StartCluster(ctx, cfg); err != nil {
		return t, err
	}
	conn, err := router.Dial(t.cluster.Addrs()...)
	if err != nil {
		return t, err
	}
	t.client, t.hangUp = skipperpb.NewControllerServiceClient(conn), conn.Close
	return t, nil
}

func (t *claimTeam) disband(ctx context.Context) error {
	return errors.Join(t.hangUp(), t.cluster.Close(ctx))
}

// turn patches n pods, then claims n, with so many clients.
func (t *claimTeam) turn(ctx context.Context, kube kubernetes.Interface, round, n, clients int) error {
	pods, err := t.cluster.List(ctx, "skipper/deployment,!skipper/tenant")
	if err != nil {
		return err
	}
	if len(pods) < n {
		return fmt.Errorf("%d pods are left, want %d", len(pods), n)
	}
	begin := time.Now()
	if err := inParallel(n, clients, func(i int) error { return barePatch(ctx, kube, &pods[i]) }); err != nil {
		return err
	}
	t.patched = append(t.patched, perSecond(n, time.Since(begin)))

	begin = time.Now()
	var mu sync.Mutex
	err = inParallel(n, clients, func(i int) error {
		tenant := fmt.Sprintf("r%d-%d", round, i)
		got, err := t.claim(ctx, tenant)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && t.owners[got] != "" {
			t.double++
		}
		t.owners[got] = tenant
		return err
	})
	if err != nil {
		return err
	}
	t.answered = append(t.answered, perSecond(n, time.Since(begin)))
	if err := t.allWritten(ctx, n*(round+1)); err != nil {
		return err
	}
	t.written = append(t.written, perSecond(n, time.Since(begin)))
	t.claims += n
	return nil
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

func (t *claimTeam) claim(ctx context.Context, tenant string) (pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	r, err := t.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: t.cluster.Function(tenant)})
	return r.GetInstance().GetName(), err
}

// allWritten waits until n pods are claimed and ready, both written.
func (t *claimTeam) allWritten(ctx context.Context, n int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pods, err := t.cluster.List(ctx, "skipper/tenant")
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods {
			if pods[i].Annotations["skipper/ready-at"] != "" {
				ready++
			}
		}
		if ready >= n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// barePatch is what a claim cannot do without, and nothing else.
func barePatch(ctx context.Context, kube kubernetes.Interface, p *corev1.Pod) error {
	path := "/metadata/annotations"
	var value any = map[string]string{"bench": time.Now().String()}
	if len(p.Annotations) > 0 {
		path, value = path+"/bench", time.Now().String()
	}
	patch, err := json.Marshal([]map[string]any{{"op": "test", "path": "/metadata/uid", "value": p.UID}, {"op": "add", "path": path, "value": value}})
	if err != nil {
		return err
	}
	_, err = kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// inParallel calls do for 0 to n-1 on so many goroutines, and joins the errors.
func inParallel(n, workers int, do func(int) error) error {
	todo := make(chan int)
	errs := make([]error, workers)
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for i := range todo {
				errs[w] = errors.Join(errs[w], do(i))
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	running.Wait()
	return errors.Join(errs...)
}

func claimsTable(ctx context.Context, teams []*claimTeam) (string, error) {
	table := report.Table{Header: []string{
		"controllers", "claims", "claims/s, answered", "claims/s, both writes done", "rival: bare patches/s", "of half the rival's, %", "lost races", "double",
	}}
	for _, t := range teams {
		outcomes, err := t.outcomes(ctx)
		if err != nil {
			return "", err
		}
		share := make([]float64, len(t.written))
		for i := range share {
			share[i] = 100 * t.written[i] / (t.patched[i] / 2)
		}
		lost := outcomes["lost_race"] + outcomes["lost_deleting"] + outcomes["gone"]
		table.Add(fmt.Sprint(len(t.cluster.Controllers)), fmt.Sprint(t.claims), report.SpreadOf(t.answered).Format(0), report.SpreadOf(t.written).Format(0),
			report.SpreadOf(t.patched).Format(0), report.SpreadOf(share).Format(0),
			fmt.Sprintf("%.0f (%.1f %%)", lost, 100*lost/math.Max(1, outcomes["won"])), fmt.Sprint(t.double+int(outcomes["won"])-t.claims))
	}
	return table.Markdown(), nil
}

// outcomes sums up what became of all controllers' claim patches.
func (t *claimTeam) outcomes(ctx context.Context) (map[string]float64, error) {
	sum := map[string]float64{}
	for _, c := range t.cluster.Controllers {
		one, err := hollow.Metric(ctx, c.Web(), "skipper_controller_claims_total", "outcome")
		if err != nil {
			return nil, err
		}
		for k, v := range one {
			sum[k] += v
		}
	}
	return sum, nil
}

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"skipper/extproc/heartbeat"
	"skipper/extproc/table"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/test/router"
	"skipper/xds"
	"skipper/xds/client"
)

const (
	fleetExtprocs = 10
	// fleetHeartbeat is extproc's default --heartbeat-interval.
	fleetHeartbeat = 5 * time.Second
)

// standIn is an extproc without requests: it is subscribed to every function and
// names each in its heartbeats.
type standIn struct {
	router heartbeat.Router
	after  time.Duration // first heartbeat
	usages []table.Usage
	conn   *grpc.ClientConn
	failed atomic.Int64 // heartbeats that did not arrive

	mu    sync.Mutex
	known map[string]bool // functions whose instance it was told; guarded by mu
}

// newStandIn makes the n-th one. Each function has a request in progress at one
// of them.
func newStandIn(n int, w fleetWorld, controllers []string) (*standIn, error) {
	conn, err := router.Dial(controllers...)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("extproc-%d", n)
	s := &standIn{
		router: heartbeat.Router{IP: fmt.Sprintf("10.250.0.%d", n+1), ID: id, EnvoyNodeID: "envoy-" + id, StartedAt: time.Now()},
		after:  time.Duration(n+1) * fleetHeartbeat / fleetExtprocs, conn: conn, known: map[string]bool{},
	}
	for i, f := range w.functionsOf() {
		u := table.Usage{Function: f}
		if i/fleetExtprocs%fleetExtprocs == n {
			u.Total, u.InFlight = 1, map[string]uint32{w.uid(i): 1}
		}
		s.usages = append(s.usages, u)
	}
	return s, nil
}

// run ends with ctx.
func (s *standIn) run(ctx context.Context) error {
	c := client.New(client.Options{
		Conn: s.conn, Node: &corev3.Node{Id: xds.ExtprocNode(s.router.ID), Cluster: "skipper-extproc", UserAgentName: "skipper-extproc"}, OnUpdate: s.told,
	})
	for _, u := range s.usages {
		c.Subscribe(xds.InstancesName(fn.KeyOf(u.Function)))
	}
	var running errgroup.Group
	running.Go(func() error {
		_ = c.Run(ctx) // it ends with ctx only
		return nil
	})
	running.Go(func() error {
		s.beat(ctx)
		return nil
	})
	_ = running.Wait() // neither fails
	return s.conn.Close()
}

func (s *standIn) told(f *skipperpb.FunctionInstances) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[f.GetName()] = len(f.GetInstances()) == 1
}

// complete says that it knows the instance of every function.
func (s *standIn) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.known {
		if one {
			n++
		}
	}
	return n == len(s.usages)
}

func (s *standIn) beat(ctx context.Context) {
	service := skipperpb.NewControllerServiceClient(s.conn)
	wait := time.NewTimer(s.after)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-wait.C:
			wait.Reset(fleetHeartbeat)
			for _, r := range heartbeat.Batches(s.usages, s.router, fleetHeartbeat, now) {
				if _, err := service.Heartbeat(ctx, r); err != nil && ctx.Err() == nil {
					s.failed.Add(1)
				}
			}
		}
	}
}

// standIns are all of them.
type standIns struct {
	all     []*standIn
	stop    context.CancelFunc
	running errgroup.Group
}

func startStandIns(ctx context.Context, w fleetWorld, controllers []string) (*standIns, error) {
	ctx, stop := context.WithCancel(ctx)
	out := &standIns{stop: stop}
	for n := range fleetExtprocs {
		s, err := newStandIn(n, w, controllers)
		if err != nil {
			return out, err
		}
		out.all = append(out.all, s)
		out.running.Go(func() error { return s.run(ctx) })
	}
	return out, nil
}

func (s *standIns) close() error {
	s.stop()
	return s.running.Wait()
}

// check tells of those that were not served.
func (s *standIns) check() error {
	for _, one := range s.all {
		if !one.complete() {
			return fmt.Errorf("%s was not told of all functions' instances", one.router.ID)
		}
		if n := one.failed.Load(); n > 0 {
			return fmt.Errorf("%d heartbeats of %s did not arrive", n, one.router.ID)
		}
	}
	return nil
}

package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
	"skipper/xds/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a sink that writes down what it gets.
type recorder struct {
	mu    sync.Mutex
	log   []string
	again int           // lists that are sent again
	takes time.Duration // one Apply
}

func (r *recorder) Apply(c server.Change) uint64 {
	var words []string
	for _, uid := range c.Remove {
		words = append(words, "-"+uid)
	}
	for _, e := range c.Upsert {
		words = append(words, "+"+e.UID+"@"+e.Addr)
	}
	for _, l := range c.Instances {
		words = append(words, describe(l))
	}
	for _, p := range c.Families {
		words = append(words, "family "+string(p))
	}
	slices.Sort(words)
	r.mu.Lock()
	r.log = append(r.log, strings.Join(words, " "))
	r.again += len(c.Again)
	r.mu.Unlock()
	if r.takes > 0 {
		pass(r.takes)
	}
	return 0
}

func describe(l *skipperpb.FunctionInstances) string {
	uids := []string{}
	for _, i := range l.GetInstances() {
		uids = append(uids, i.GetUid())
	}
	return fmt.Sprintf("%s=%v/%d", l.GetName(), uids, l.GetVersion())
}

func (r *recorder) Open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, "open")
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	return log
}

var function = &skipperpb.Function{
	Namespace: "prod", Deployment: "echo", Tenant: "t",
	Scale: &skipperpb.Scale{MaxInstances: 5},
}

func idle(uid string, ip byte, version uint64) pool.Pod {
	return pool.Pod{
		Namespace: "prod", Name: uid, UID: uid, IP: fmt.Sprint("10.244.0.", ip), Port: 8080, Protocol: xds.HTTP1,
		Deployment: "echo", Ready: true, Phase: corev1.PodRunning, Version: version,
	}
}

func instance(uid string, ip byte, version uint64) pool.Pod {
	p := idle(uid, ip, version)
	p.Marked, p.Tenant, p.Function, p.Key = true, "t", function, fn.KeyOf(function)
	p.AssignedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p.ReadyAt = p.AssignedAt
	return p
}

func start(t *testing.T, v *pool.View) *recorder {
	t.Helper()
	r, _ := startWith(t, v, &follower{})
	return r
}

func startWith(t *testing.T, v *pool.View, f *follower) (*recorder, *Publisher) {
	t.Helper()
	r := &recorder{}
	p := New(v, r, &Source{Pods: v, Shards: 4}, f, zap.NewNop(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	settle()
	return r, p
}

// settle lets the publisher come to rest.
func settle() {
	pass(time.Second)
	synctest.Wait()
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func TestFirstWorldThenOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		noAddress := idle("no-address", 3, 4)
		noAddress.IP = ""
		for _, p := range []pool.Pod{idle("a", 1, 2), instance("b", 2, 3), noAddress} {
			v.Apply(p)
		}
		got := start(t, v).take()
		want := []string{"+a@10.244.0.1:8080 +b@10.244.0.2:8080 family http1 prod/echo/t=[b]/4", "open"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("first changes (-want +got):\n%s", diff)
		}
	})
}

func TestEachStepOfALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		v.Apply(idle("other", 9, 1))
		r := start(t, v)
		r.take()
		assigned := instance("a", 1, 4)
		assigned.ReadyAt = time.Time{}
		draining := instance("a", 1, 6)
		draining.Draining = true
		leaving := instance("a", 1, 7)
		leaving.Deleting = true
		noIP := idle("a", 1, 2)
		noIP.IP = ""
		steps := []struct {
			name string
			do   func()
			want []string
		}{
			{"no address yet: Envoys get the clusters", func() { v.Apply(noIP) }, []string{"family http1"}},
			{"address: published before it is claimed", func() { v.Apply(idle("a", 1, 3)) }, []string{"+a@10.244.0.1:8080"}},
			{"claimed: not routable yet", func() { v.Apply(assigned) }, []string{"prod/echo/t=[]/4"}},
			{"accepted: before the informer says so", func() { v.ExpectReady("a", 0, time.Now()) }, []string{"prod/echo/t=[a]/4"}},
			{"draining: out of routing, still an endpoint", func() { v.Apply(draining) }, []string{"prod/echo/t=[]/6"}},
			{"terminating: still an endpoint", func() { v.Apply(leaving) }, []string{"prod/echo/t=[]/7"}},
			{"gone", func() { v.Remove("prod", "a", 8) }, []string{"-a prod/echo/t=[]/8"}},
			{"another one at the same address", func() { v.Apply(idle("b", 1, 9)) }, []string{"+b@10.244.0.1:8080"}},
		}
		for _, s := range steps {
			s.do()
			settle()
			if diff := cmp.Diff(s.want, r.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s.name, diff)
			}
		}
	})
}

func TestFirstEventAtOnceAStormTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		r := start(t, v)
		r.take()
		v.Apply(idle("a", 1, 1))
		synctest.Wait() // no time passes
		if diff := cmp.Diff([]string{"+a@10.244.0.1:8080"}, r.take()); diff != "" {
			t.Errorf("single event (-want +got):\n%s", diff)
		}
		for i := range 200 {
			v.Apply(idle(fmt.Sprint("p", i), byte(i), uint64(i+2)))
		}
		settle()
		if log := r.take(); len(log) != 1 || strings.Count(log[0], "+") != 200 {
			t.Errorf("200 events became %d changes, want 1", len(log))
		}
	})
}

func TestSlowSinkGetsTheTruthAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		r := start(t, v)
		r.take()
		r.takes = time.Second
		v.Apply(idle("a", 1, 1))
		synctest.Wait()
		v.Apply(idle("b", 2, 2))
		v.Remove("prod", "a", 3)
		v.Remove("prod", "b", 4)
		v.Apply(idle("c", 2, 5))
		pass(5 * time.Second)
		want := []string{"+a@10.244.0.1:8080", "+c@10.244.0.2:8080 -a"}
		if diff := cmp.Diff(want, r.take()); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

func TestSource(t *testing.T) {
	v := pool.NewView()
	v.Apply(instance("b", 2, 3))
	v.Apply(instance("a", 1, 5))
	s := &Source{Pods: v, Shards: 4}
	tests := []struct {
		name, want string
		known      bool
	}{
		{"prod/echo/t", "prod/echo/t=[a b]/5", true},
		{"prod/echo/t/oneshot", "prod/echo/t/oneshot=[]/5", true},
		{"prod/echo/stranger", "prod/echo/stranger=[]/5", true},
		{"prod/unknown/t", "prod/unknown/t=[]/5", false},
		{"nonsense", "=[]/0", false},
	}
	for _, tt := range tests {
		got, known := s.Instances(tt.name)
		if describe(got) != tt.want || known != tt.known {
			t.Errorf("Instances(%q) = %s, %v, want %s, %v", tt.name, describe(got), known, tt.want, tt.known)
		}
	}
	got, _ := s.Instances("prod/echo/t")
	if c := got.GetInstances()[0].GetCluster(); c != xds.ClusterOf(xds.HTTP1, "a", 4) {
		t.Errorf("cluster %q, want that of the UID", c)
	}
}

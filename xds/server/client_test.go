package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	skipperpb "skipper/proto"
	"skipper/xds/client"
	"skipper/xds/server"
)

// follow runs a client of the real kind; its updates come out of the channel.
func follow(t *testing.T, conn *grpc.ClientConn) (*client.Client, <-chan *skipperpb.FunctionInstances) {
	t.Helper()
	updates := make(chan *skipperpb.FunctionInstances, 1000)
	c := client.New(client.Options{
		Conn: conn, Node: &corev3.Node{Id: "extproc"},
		OnUpdate: func(m *skipperpb.FunctionInstances) { updates <- m },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c, updates
}

func TestClientFollowsTheServer(t *testing.T) {
	src := &source{}
	src.set(list("a/b/known", 3, "u1"))
	s := server.New(server.Options{Source: src})
	c, updates := follow(t, start(t, s))
	c.Subscribe("a/b/known")
	s.Open()
	for _, want := range []*skipperpb.FunctionInstances{list("a/b/known", 3, "u1"), list("a/b/known", 4, "u1", "u2"), list("a/b/known", 5)} {
		s.Apply(server.Change{Instances: protoList(want)})
		if diff := cmp.Diff(want, <-updates, protocmp.Transform()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	c.Subscribe("a/b/unknown")
	if diff := cmp.Diff(list("a/b/unknown", 0), <-updates, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, connected := c.Synced(); !connected {
		t.Error("not synced")
	}
}

// TestReconnectSendsOnlyWhatChanged breaks the stream and changes one of many.
func TestReconnectSendsOnlyWhatChanged(t *testing.T) {
	registry, src := prometheus.NewRegistry(), &source{}
	s := server.New(server.Options{Source: src, Registerer: registry})
	s.Open()
	c, updates := follow(t, start(t, s))
	const functions = 50
	for i := range functions {
		c.Subscribe(fmt.Sprintf("a/b/t%d", i))
	}
	for range functions {
		<-updates
	}
	s.Hold("rolled out")
	src.set(list("a/b/t7", 9, "u1"))
	s.Open()
	if diff := cmp.Diff(list("a/b/t7", 9, "u1"), <-updates, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Subscribe("a/b/barrier")
	if got := (<-updates).GetName(); got != "a/b/barrier" {
		t.Errorf("an unchanged list came again: %s", got)
	}
}

// TestClientFollowsManyChanges ends with the client knowing the last list of
// each function, though streams break and lists come fast.
func TestClientFollowsManyChanges(t *testing.T) {
	const functions, changes = 10, 400
	src := &source{}
	s := server.New(server.Options{Source: src})
	s.Open()
	c, updates := follow(t, start(t, s))
	last := map[string]string{}
	for n := range changes {
		name, uid := fmt.Sprintf("a/b/t%d", n%functions), fmt.Sprint(n)
		last[name] = uid
		c.Subscribe(name)
		src.set(list(name, uint64(n+1), uid))
		s.Apply(server.Change{Instances: protoList(list(name, uint64(n+1), uid))})
		if n%150 == 149 {
			s.Hold("again")
			s.Open()
		}
	}
	got := map[string]string{}
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !cmp.Equal(last, got) {
		select {
		case m := <-updates:
			got[m.GetName()] = lastUID(m)
		case <-deadline.C:
			t.Fatalf("client does not arrive at the end (-want +got):\n%s", cmp.Diff(last, got))
		}
	}
}

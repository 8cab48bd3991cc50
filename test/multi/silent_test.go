//go:build e2e

package multi_test

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"skipper/extproc/controller"
	"skipper/extproc/replicas"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/test/hollow"
	"skipper/xds"
	"skipper/xds/client"
)

// A controller that falls silent, its connections open, is left by Envoy and by
// extproc for others, and no call fails meanwhile.
func TestSilentControllerIsLeft(t *testing.T) {
	w := newWorld(t, options{pool: 40, controllers: 3})
	w.startEnvoy("/nowhere/extproc.sock", nil, w.addrs()...)
	silent := w.subscribed("endpoint", w.controllers)
	conn := w.extprocConn()
	stop := w.subscribeAt(conn, silent)
	defer func() { stop() }()
	api := skipperpb.NewControllerServiceClient(conn)
	warm := w.function("warm")
	if _, err := w.get(api, warm); err != nil {
		t.Fatal(err)
	}

	begun := time.Now()
	if err := silent.Freeze(); err != nil {
		t.Fatal(err)
	}
	var waits sync.WaitGroup
	waits.Go(func() { w.callAll("warm", 20, func(int) *skipperpb.Function { return warm }, api) })
	waits.Go(func() {
		w.callAll("cold", 20, func(i int) *skipperpb.Function { return w.function(fmt.Sprint("cold", i)) }, api)
	})
	var others []*hollow.Controller
	for _, c := range w.controllers {
		if c != silent {
			others = append(others, c)
		}
	}
	for kind, who := range map[string]string{"endpoint": "Envoy", "instances": "extproc"} {
		waits.Go(func() {
			w.subscribed(kind, others)
			t.Logf("%s had its stream elsewhere after %s", who, time.Since(begun))
		})
	}
	waits.Wait()
}

// callAll makes n calls at once and logs when the last was answered.
func (w *world) callAll(what string, n int, f func(int) *skipperpb.Function, api skipperpb.ControllerServiceClient) {
	begun := time.Now()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if _, err := w.get(api, f(i)); err != nil {
				w.t.Errorf("%s call: %v", what, err)
			}
		})
	}
	calls.Wait()
	w.t.Logf("%d %s calls were answered within %s", n, what, time.Since(begun))
}

// subscribed waits until one of the controllers has a subscriber of the kind.
func (w *world) subscribed(kind string, among []*hollow.Controller) (at *hollow.Controller) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		for _, c := range among {
			streams, err := hollow.Metric(ctx, c.Web(), "skipper_controller_xds_subscribers", "type")
			if err == nil && streams[kind] > 0 {
				return c
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Errorf("nobody subscribed to %s", kind)
			return nil
		}
	}
}

// extprocConn is a connection to all controllers as extproc has it.
func (w *world) extprocConn() *grpc.ClientConn {
	w.t.Helper()
	lookup := func(context.Context, string) (all []netip.Addr, _ error) {
		for _, ip := range w.ips {
			all = append(all, netip.MustParseAddr(ip))
		}
		return all, nil
	}
	conn, err := controller.Dial(replicas.Target("controllers", strconv.Itoa(grpcPort)),
		replicas.Watch(insecure.NewCredentials(), replicas.WatchOptions{}), replicas.DialOptions(replicas.Options{Lookup: lookup})...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// subscribeAt runs extproc's xDS client with its stream at that controller, and
// returns how to end it. Streams go to each controller in turn.
func (w *world) subscribeAt(conn *grpc.ClientConn, want *hollow.Controller) (stop func()) {
	w.t.Helper()
	w.eventually("extproc's stream is at the same controller as Envoy's", func() (bool, string) {
		stop = w.subscribe(conn)
		at := w.subscribed("instances", w.controllers)
		if at == want {
			return true, ""
		}
		stop()
		w.eventually("the stream is closed", func() (bool, string) {
			n, err := hollow.Metric(w.t.Context(), at.Web(), "skipper_controller_xds_subscribers", "type")
			return err == nil && n["instances"] == 0, fmt.Sprint(n, err)
		})
		return false, at.Addr()
	})
	return stop
}

func (w *world) subscribe(conn *grpc.ClientConn) (stop func()) {
	c := client.New(client.Options{
		Conn: conn, Node: &corev3.Node{Id: "extproc/multi"}, Logger: zap.NewNop(), OnUpdate: func(*skipperpb.FunctionInstances) {},
	})
	c.Subscribe(xds.InstancesName(fn.KeyOf(w.function("warm"))))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) }) // ends with the context
	return func() {
		cancel()
		running.Wait()
	}
}

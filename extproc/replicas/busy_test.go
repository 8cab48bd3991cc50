package replicas_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// burnVariable makes the test program use up one core instead, until it is killed.
const burnVariable = "SKIPPER_TEST_BURN"

var busy = flag.Duration("busy", 3*time.Second, "how long connections must stay on a busy machine")

func burn() {
	for n := 0; ; n++ {
		_ = n * n
	}
}

// startBurners runs two processes for each core, of the same priority as ours,
// and two goroutines for each beside the prober's.
func startBurners(t *testing.T) {
	t.Helper()
	var stop atomic.Bool
	t.Cleanup(func() { stop.Store(true) })
	for range 2 * runtime.NumCPU() {
		c := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
		c.Env = append(os.Environ(), burnVariable+"=1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait() // says that it was killed
		})
		go func() {
			for n := 0; !stop.Load(); n++ {
				_ = n * n
			}
		}()
	}
}

// A connection to a replica that lives stays, however little is said, and
// however busy the machine is. With -busy=1m it is tried for longer.
func TestBusyMachineCostsNoConnection(t *testing.T) {
	c := startCluster(t)
	s := c.subscribe(t)
	s.heard(t, "a/b/c")
	since, connected := s.Synced()
	startBurners(t)
	wait := time.NewTimer(*busy)
	defer wait.Stop()
	<-wait.C
	if now, still := s.Synced(); !connected || !still || !now.Equal(since) {
		t.Errorf("synced since %v (%v), then since %v (%v)", since, connected, now, still)
	}
	if n := c.closed.Len(); n > 0 {
		t.Errorf("%d connections were closed: %v", n, c.closed.All())
	}
}

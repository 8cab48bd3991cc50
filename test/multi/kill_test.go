//go:build e2e

package multi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	skipperpb "skipper/proto"
	"skipper/test/hollow"
)

// quick makes leftovers of a killed controller be found soon.
var quick = []string{"--function-assign-timeout=2s", "--scale-interval=1s"}

// trap catches the first one that comes, and lets all others pass.
type trap struct {
	caught  chan struct{} // closed when one is caught
	release chan struct{}
	once    sync.Once
}

func newTrap() *trap { return &trap{caught: make(chan struct{}), release: make(chan struct{})} }

// pass returns what to wait for; nil: nothing.
func (t *trap) pass() (wait <-chan struct{}) {
	t.once.Do(func() {
		close(t.caught)
		wait = t.release
	})
	return wait
}

// holdPatch holds the first patch of a pod up.
func (t *trap) holdPatch(r *http.Request) {
	if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/pods/") {
		return
	}
	if wait := t.pass(); wait != nil {
		<-wait
	}
}

// TestOwnerKilledInTheMiddle kills the responsible replica at each step of a
// cold start. The caller, at another replica, gets an instance all the same,
// long before a pod counts as stuck and though the function may have only the
// one that was left behind; and in the end no other pod is left claimed.
func TestOwnerKilledInTheMiddle(t *testing.T) {
	tests := map[string]func(*world, *trap){
		"before the claim is written": func(w *world, tr *trap) { w.before.set(tr.holdPatch) },
		"after the claim was written": func(w *world, tr *trap) { w.after.set(tr.holdPatch) },
		"during the assignment": func(w *world, tr *trap) {
			w.pods.Hold(func(hollow.Assignment) <-chan struct{} { return tr.pass() })
		},
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			w, tr := newWorld(t, options{pool: 5, controllers: 3, args: []string{"--scale-interval=1s"}}), newTrap()
			set(w, tr)
			f := w.ownedBy(1)
			f.Scale.MaxInstances = 1
			result := make(chan error, 1)
			var got *skipperpb.Instance
			client := w.client(w.controllers[0].Addr())
			go func() {
				var err error
				got, err = w.get(client, f)
				result <- err
			}()
			<-tr.caught
			w.controllers[1].Kill()
			close(tr.release)
			// The ring does not know yet: the caller must not depend on that.
			if err := <-result; err != nil {
				t.Fatalf("the owner was killed: %v, want an instance from another replica", err)
			}
			w.kill(1)
			w.onlyInstance(f, got.GetName())
		})
	}
}

// onlyInstance waits until the function has the one pod, ready, and no other.
func (w *world) onlyInstance(f *skipperpb.Function, name string) {
	w.t.Helper()
	w.eventually("nothing is left over", func() (bool, string) {
		var left []string
		good := false
		for _, p := range w.list("skipper/tenant="+f.GetTenant(), "") {
			left = append(left, fmt.Sprint(p.Name, " ready-at ", p.Annotations["skipper/ready-at"], " deleting ", p.DeletionTimestamp))
			good = p.Name == name && p.Annotations["skipper/ready-at"] != ""
		}
		return good && len(left) == 1, strings.Join(left, "; ")
	})
}

// TestForwarderKilledInTheMiddle kills a replica that has forwarded a call,
// while the responsible one works on it. Every caller gets the one instance.
func TestForwarderKilledInTheMiddle(t *testing.T) {
	w, tr := newWorld(t, options{pool: 5, controllers: 3, args: quick}), newTrap()
	w.pods.Hold(func(hollow.Assignment) <-chan struct{} { return tr.pass() })
	client := w.client(w.addrs()...)
	w.meetAll(client)
	f := w.ownedBy(1)
	const callers = 9 // three at each replica
	names := make(chan string, callers)
	for range callers {
		go func() {
			i, err := w.get(client, f)
			if err != nil {
				t.Errorf("a forwarder was killed: %v, want the instance through another replica", err)
			}
			names <- i.GetName()
		}()
	}
	<-tr.caught
	w.eventually("all callers are with the owner", func() (bool, string) {
		n := gauge(t, w.controllers[1].Web(), "skipper_controller_waiting_callers")
		return n == callers, fmt.Sprint(n)
	})
	w.kill(0)
	close(tr.release)
	first := <-names
	for range callers - 1 {
		if name := <-names; name != first {
			t.Errorf("callers were given %s and %s", first, name)
		}
	}
	w.onlyInstance(f, first)
}

// meetAll calls until every replica has answered once, so that the client is
// connected to all.
func (w *world) meetAll(c skipperpb.ControllerServiceClient) {
	w.t.Helper()
	met := map[string]bool{}
	w.eventually("every replica has answered", func() (bool, string) {
		s, err := c.GetClusterState(w.t.Context(), &skipperpb.GetClusterStateRequest{})
		met[s.GetClusterState().GetPodIp()] = err == nil
		delete(met, "")
		return len(met) == len(w.controllers), fmt.Sprint(met, err)
	})
}

package forward

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/reason"
)

func get(t *testing.T, c skipperpb.ControllerServiceClient, f *skipperpb.Function) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f})
	return r.GetInstance().GetName(), err
}

func TestCallsGoToTheOwner(t *testing.T) {
	w := newWorld(t, 3)
	for _, at := range w.ips {
		c := w.client(at)
		for _, owner := range w.ips {
			f := w.ownedBy(owner)
			if got, err := get(t, c, f); got != owner || err != nil {
				t.Errorf("GetInstance at %s = %s, %v, want it executed by %s", at, got, err, owner)
			}
			r, err := c.Scale(t.Context(), &skipperpb.ScaleRequest{Function: f})
			if err != nil || r.GetInstances()[0].GetName() != owner {
				t.Errorf("Scale at %s = %v, %v, want it executed by %s", at, r, err, owner)
			}
		}
	}
}

func TestForwardedCallIsExecutedByWhoeverReceivesIt(t *testing.T) {
	w := newWorld(t, 3)
	ctx := metadata.AppendToOutgoingContext(t.Context(), MetadataKey, "10.0.0.9")
	r, err := w.client(w.ips[0]).GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: w.ownedBy(w.ips[1])})
	if err != nil || r.GetInstance().GetName() != w.ips[0] {
		t.Errorf("GetInstance = %v, %v, want it executed where it came in", r, err)
	}
}

// Two replicas that each take the other for the owner do not send a call round
// and round.
func TestReplicasThatDisagreeEndTheCall(t *testing.T) {
	w := newWorld(t, 2)
	w.replicas[w.ips[0]].ring.Set(w.ips[1])
	w.replicas[w.ips[1]].ring.Set(w.ips[0])
	if got, err := get(t, w.client(w.ips[0]), w.ownedBy(w.ips[0])); got != w.ips[1] || err != nil {
		t.Errorf("GetInstance = %s, %v, want %s", got, err, w.ips[1])
	}
}

func TestErrorsOfTheOwnerArriveWithTheirDetails(t *testing.T) {
	w := newWorld(t, 2)
	w.replicas[w.ips[1]].execute = func(context.Context) error {
		return reason.Error(codes.ResourceExhausted, reason.LimitReached, "too many")
	}
	_, err := get(t, w.client(w.ips[0]), w.ownedBy(w.ips[1]))
	if status.Code(err) != codes.ResourceExhausted || reason.Of(err) != reason.LimitReached || status.Convert(err).Message() != "too many" {
		t.Errorf("error %v (%q), want the owner's own", err, reason.Of(err))
	}
	if n := w.replicas[w.ips[0]].executed(); n != 0 {
		t.Errorf("%d calls executed locally after an error of the owner, want none", n)
	}
}

func TestDeadlineTravelsAlong(t *testing.T) {
	w := newWorld(t, 2)
	left := make(chan time.Duration, 1)
	w.replicas[w.ips[1]].execute = func(ctx context.Context) error {
		deadline, ok := ctx.Deadline()
		if !ok {
			return errors.New("no deadline")
		}
		left <- time.Until(deadline)
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := w.client(w.ips[0]).GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: w.ownedBy(w.ips[1])}); err != nil {
		t.Fatal(err)
	}
	if d := <-left; d > time.Hour {
		t.Errorf("the owner has %s left, the caller gave an hour", d)
	}
}

func TestCallerThatLeavesEndsTheOwnersCall(t *testing.T) {
	w := newWorld(t, 2)
	begun, ended := make(chan struct{}), make(chan struct{})
	w.replicas[w.ips[1]].execute = func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	c, f := w.client(w.ips[0]), w.ownedBy(w.ips[1])
	go func() {
		_, err := c.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f})
		result <- err
	}()
	<-begun
	cancel()
	<-ended
	if err := <-result; status.Code(err) != codes.Canceled {
		t.Errorf("error %v, want CANCELED", err)
	}
	if n := w.replicas[w.ips[0]].executed(); n != 0 {
		t.Errorf("%d calls executed for a caller that has left", n)
	}
}

// A killed process: its connections break in the middle of a call.
func TestNextOwnerTakesOverFromAKilledOne(t *testing.T) {
	for _, next := range []int{0, 2} { // the replica that was called, and a third one
		t.Run(fmt.Sprint("next is ", next), func(t *testing.T) {
			w := newWorld(t, 3)
			owner := w.replicas[w.ips[1]]
			owner.execute = func(ctx context.Context) error {
				go owner.server.Stop() // which waits for this call
				<-ctx.Done()
				return ctx.Err()
			}
			f := w.ownedBy(w.ips[1], w.ips[next])
			c := w.client(w.ips[0])
			for range 3 { // the first finds out, the others know
				if got, err := get(t, c, f); got != w.ips[next] || err != nil {
					t.Errorf("GetInstance = %s, %v, want it executed by %s", got, err, w.ips[next])
				}
			}
		})
	}
}

// A lost node: nothing is refused or reset, nothing answers.
func TestNextOwnerTakesOverFromASilentOne(t *testing.T) {
	w := newWorld(t, 3)
	owner := w.replicas[w.ips[1]]
	f, c := w.ownedBy(w.ips[1], w.ips[2]), w.client(w.ips[0])
	if got, err := get(t, c, f); got != owner.ip || err != nil {
		t.Fatalf("GetInstance = %s, %v, want %s", got, err, owner.ip)
	}
	owner.set(func() { owner.silent = true })
	for range 3 {
		if got, err := get(t, c, f); got != w.ips[2] || err != nil {
			t.Errorf("GetInstance = %s, %v, want it executed by %s", got, err, w.ips[2])
		}
	}
	if !w.replicas[w.ips[0]].peers.Down(owner.ip) {
		t.Error("the silent replica does not count as down")
	}
	owner.set(func() { owner.silent = false })
	for w.replicas[w.ips[0]].peers.Down(owner.ip) { // a probe or a new connection finds out
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		_, _ = get(t, c, f)
	}
}

// Silence is found out without a call, so that whoever leaves the silent replica
// need not wait for it once more.
func TestSilenceIsNoticedWithoutACall(t *testing.T) {
	w := newWorld(t, 3)
	owner := w.replicas[w.ips[1]]
	f, c := w.ownedBy(w.ips[1], w.ips[2]), w.client(w.ips[0])
	if _, err := get(t, c, f); err != nil {
		t.Fatal(err)
	}
	owner.set(func() { owner.silent = true })
	for tick := time.NewTicker(10 * time.Millisecond); !w.replicas[w.ips[0]].peers.Down(owner.ip); <-tick.C {
		if t.Context().Err() != nil {
			t.Fatal("the silent replica does not count as down")
		}
	}
	if got, err := get(t, c, f); got != w.ips[2] || err != nil {
		t.Errorf("GetInstance = %s, %v, want it executed by %s", got, err, w.ips[2])
	}
	if n := counted(t, w.replicas[w.ips[0]].forward.cfg.Metrics.deaths); n != 1 {
		t.Errorf("%v deaths, want 1", n)
	}
}

// A call that takes its time is no sign of death.
func TestSlowOwnerIsNotTakenForDead(t *testing.T) {
	w := newWorld(t, 2)
	for _, r := range w.replicas {
		r.peers.cfg.DeadAfter = 40 * time.Millisecond
	}
	w.join(w.ips[0])
	w.join(w.ips...) // new connections with the shorter time
	w.replicas[w.ips[1]].execute = func(ctx context.Context) error {
		timer := time.NewTimer(400 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if got, err := get(t, w.client(w.ips[0]), w.ownedBy(w.ips[1])); got != w.ips[1] || err != nil {
		t.Errorf("GetInstance = %s, %v, want %s, which only was slow", got, err, w.ips[1])
	}
}

func TestMemberThatLeavesAnswersWhatItWasAsked(t *testing.T) {
	w := newWorld(t, 2)
	begun, finish := make(chan struct{}), make(chan struct{})
	w.replicas[w.ips[1]].execute = func(context.Context) error {
		close(begun)
		<-finish
		return nil
	}
	result := make(chan string, 1)
	c, f := w.client(w.ips[0]), w.ownedBy(w.ips[1])
	go func() {
		got, err := get(t, c, f)
		result <- fmt.Sprint(got, err)
	}()
	<-begun
	w.join(w.ips[0])
	close(finish)
	if got := <-result; got != w.ips[1]+"<nil>" {
		t.Errorf("GetInstance = %s, want the answer of %s", got, w.ips[1])
	}
	if got, err := get(t, c, f); got != w.ips[0] || err != nil {
		t.Errorf("GetInstance afterwards = %s, %v, want %s", got, err, w.ips[0])
	}
}

func TestNobodyOnTheRing(t *testing.T) {
	w := newWorld(t, 1)
	w.join()
	f := w.replicas[w.ips[0]].forward
	if _, done, err := f.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: w.ownedBy(w.ips[0])}); done || !errors.Is(err, ring.ErrEmpty) {
		t.Errorf("GetInstance = %v, %v, want ring.ErrEmpty after the wait", done, err)
	}
	w.join(w.ips...)
	f.cfg.Serving = func() bool { return false }
	if _, done, err := f.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: w.ownedBy(w.ips[0])}); done || !errors.Is(err, ring.ErrEmpty) {
		t.Errorf("GetInstance of one that is stopping = %v, %v, want ring.ErrEmpty", done, err)
	}
}

func TestReasonsAreCounted(t *testing.T) {
	w := newWorld(t, 2)
	c := w.client(w.ips[0])
	for _, owner := range w.ips {
		if _, err := get(t, c, w.ownedBy(owner)); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]float64{}
	for _, r := range []Reason{Responsible, ToOwner, ToNext} {
		got[string(r)] = counted(t, w.replicas[w.ips[0]].forward.cfg.Metrics.routes.WithLabelValues("GetInstance", string(r)))
	}
	if d := cmp.Diff(map[string]float64{"responsible": 1, "owner": 1, "next_owner": 0}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// awaitReady returns when the connection is up, without a call having been made.
func awaitReady(t *testing.T, p *peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for state := p.conn.GetState(); state != connectivity.Ready; state = p.conn.GetState() {
		if !p.conn.WaitForStateChange(ctx, state) {
			t.Fatalf("connection to %s is %s, want it ready", p.ip, state)
		}
	}
}

func TestConnectionsAreKeptWarm(t *testing.T) {
	w := newWorld(t, 2)
	p := w.replicas[w.ips[0]].peers.of(w.ips[1])
	awaitReady(t, p)
	w.conns.closeAll() // as a server does with connections of a certain age
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p.conn.WaitForStateChange(ctx, connectivity.Ready)
	awaitReady(t, p)
}

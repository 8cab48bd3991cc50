//go:build e2e

package e2e_test

import (
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
)

// longOutage is the variable that makes the API server stay away for longer than a minute, such as 10m.
const longOutage = "SKIPPER_E2E_OUTAGE"

// outage is how long the API server cannot be reached.
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(longOutage)
	if text == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", longOutage, err)
	}
	return d
}

// stageSettings make controllers act within seconds.
func stageSettings() map[string]string {
	return map[string]string{
		"SKIPPER_SCALE_INTERVAL": "1s", "SKIPPER_HEARTBEAT_TIMEOUT": "20s", "SKIPPER_HPA_DOWNSCALE_STABILIZATION": "5s",
		"SKIPPER_FUNCTION_ASSIGN_TIMEOUT": "3s",
	}
}

// outageStage takes the API server from both controllers for a while. Warm functions do not notice, no pod is deleted,
// and afterwards all goes on by itself: first requests, a function that had to grow meanwhile, and one that has fallen
// silent. Red: controllers end or stay stuck, take silence of the API server for the end of pods, or forget what they
// had to do.
func outageStage(t *testing.T) {
	s := newStage(t, 2, stageSettings())
	p := s.newPool(t, 8)
	warm := p.keepWarm(t, 3)
	growing := p.function("growing")
	growing.Scale = &skipperpb.Scale{MaxInstances: 5, TargetInFlightRequests: 5}
	first := startCrowd(t, p, growing, 2, "/slow?for=500ms")
	p.waitServing(t, growing, 1)
	p.waitFull(t)
	mustEcho(t, p.get(t.Context(), p.function("silent"), "/"))
	many := s.inOutage(t, p, growing)
	back := time.Now()
	p.afterOutage(t, growing, back)
	many.stop(t)
	first.stop(t)
	left := map[string]int{}
	for tenant, uid := range warm.pods {
		p.wantSteady(t, tenant, uid)
		left[p.tenant(tenant)] = 1
	}
	p.waitLeft(t, left)
	t.Logf("%d warm requests", warm.stopAll(t))
	for _, pod := range s.systemPods(t, controllerName) {
		if n := pod.Status.ContainerStatuses[0].RestartCount; n > 0 {
			t.Errorf("controller %s was started anew %d times", pod.Name, n)
		}
	}
}

// inOutage plays the outage: half of it the API server refuses, half of it it takes connections and says nothing. A
// function gets more requests meanwhile than its instances are for.
func (s *stage) inOutage(t *testing.T, p *pool, growing *skipperpb.Function) *crowd {
	t.Helper()
	alive := p.alive()
	s.gate.set(refused)
	defer s.gate.set(open)
	many := startCrowd(t, p, growing, 13, "/slow?for=500ms")
	cold := make(chan answer, 1)
	go func() { cold <- p.get(t.Context(), p.function("early"), "/") }()
	half := outage(t) / 2
	look := func() {
		for uid := range alive {
			if e, _ := p.pods.entry(uid); e.gone || e.pod.DeletionTimestamp != nil {
				t.Fatalf("pod %s was deleted without an API server:%s", uid, p.pods)
			}
		}
	}
	during(t, half, look)
	s.gate.set(mute)
	during(t, half, look)
	if a := <-cold; a.err != nil || a.reason() == "" {
		t.Errorf("a first request without an API server: %s, want an answer with a reason", a)
	} else {
		t.Logf("a first request without an API server: %s", a)
	}
	return many
}

// alive are the pods that have a tenant and live.
func (p *pool) alive() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, e := range p.pods.claimed("") {
		if !e.gone && e.pod.DeletionTimestamp == nil {
			out[e.pod.UID] = true
		}
	}
	return out
}

// afterOutage waits for all that had to wait.
func (p *pool) afterOutage(t *testing.T, growing *skipperpb.Function, back time.Time) {
	t.Helper()
	var all sync.WaitGroup
	took := map[string]time.Duration{}
	var mu sync.Mutex
	for what, done := range map[string]func() bool{
		"a first request":           func() bool { return p.get(t.Context(), p.function("late"), "/").status == http.StatusOK },
		"three instances":           func() bool { return len(p.serving(growing)) == 3 },
		"the silent function's end": func() bool { return len(p.pods.held(p.tenant("silent"))) == 0 },
	} {
		all.Go(func() {
			err := poll(t.Context(), done)
			mu.Lock()
			defer mu.Unlock()
			took[what] = time.Since(back).Round(100 * time.Millisecond)
			if err != nil {
				t.Errorf("%s after the outage: %v:%s", what, err, p.pods)
			}
		})
	}
	all.Wait()
	t.Logf("after the outage: %v", took)
}

//go:build e2e

package e2e_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	skipperpb "skipper/proto"
)

// TestStages shows Skipper at what takes its time: stages of their own, all at once, so that the longest story decides.
// Not parallel with other tests, whose pods would take the CPU that is measured here.
func TestStages(t *testing.T) {
	var all sync.WaitGroup
	for name, play := range map[string]func(*testing.T){
		"scaling":                   scalingStage,
		"without an API server":     outageStage,
		"with a frozen watch":       frozenStage,
		"with crashing controllers": crashStage,
	} {
		all.Go(func() { t.Run(name, play) })
	}
	all.Wait()
}

// window is the stage's --hpa-downscale-stabilization.
const window = 10 * time.Second

// scalingStage has one controller, so that all of its limits are those of one.
func scalingStage(t *testing.T) {
	s := newStage(t, 1, map[string]string{
		"SKIPPER_SCALE_INTERVAL": "1s", "SKIPPER_HEARTBEAT_TIMEOUT": "15s", "SKIPPER_HPA_DOWNSCALE_STABILIZATION": window.String(),
		"SKIPPER_HPA_INITIAL_READINESS_DELAY": "5s",
	})
	var all sync.WaitGroup
	for name, story := range map[string]func(*testing.T, *stage){
		"by CPU": cpuStory, "by memory": memoryStory, "by requests in flight": inFlightStory, "image": imageStory,
	} {
		all.Go(func() { t.Run(name, func(t *testing.T) { story(t, s) }) })
	}
	all.Wait()
}

// metricsPatience bounds the wait for what the metrics API has to show first: kubelet and metrics-server each look
// every 10 to 15 s, and average.
const metricsPatience = 4 * time.Minute

// A function that uses 270 thousandths of a core, whoever of its instances does, at a target of 100, has three of
// them. Red: usage is not read, summed up, compared with the target, or the downscale does not wait for the window.
func cpuStory(t *testing.T, s *stage) {
	s.followUsage(t, &skipperpb.Scale{MaxInstances: 5, TargetCpuUsageMilli: 100}, "/burn?milli=90&for=1s")
}

// The same for memory: 120 MiB beside what the program itself takes, at a target of 52.
func memoryStory(t *testing.T, s *stage) {
	s.followUsage(t, &skipperpb.Scale{MaxInstances: 5, TargetMemoryUsageMib: 52}, "/hold?mib=40&for=2s", withMemory("256Mi"))
}

// withMemory is for pods that use some.
func withMemory(limit string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
}

// followUsage has three clients use what makes three instances, and then one that uses next to nothing.
func (s *stage) followUsage(t *testing.T, scale *skipperpb.Scale, path string, edits ...func(*appsv1.Deployment)) {
	const clients, instances = 3, 3
	p := s.newPool(t, 2, edits...)
	f := p.function("a")
	f.Scale = scale
	mustEcho(t, p.get(t.Context(), f, "/"))
	begun := time.Now()
	users := startCrowd(t, p, f, clients, path)
	eventuallyFor(t, metricsPatience, fmt.Sprint(instances, " instances"), func() (bool, string) {
		return len(p.serving(f)) >= instances, p.pods.String()
	})
	grown := time.Since(begun)
	quiet := startCrowd(t, p, f, 1, "/slow?for=200ms")
	users.stop(t)
	stopped := time.Now()
	eventuallyFor(t, metricsPatience, "one instance", func() (bool, string) { return len(p.serving(f)) == 1, p.pods.String() })
	t.Logf("%d instances after %s under load; one again %s after its end", instances, grown.Round(time.Second), time.Since(stopped).Round(time.Second))
	p.wantWindow(t, f, instances, stopped)
	quiet.stop(t)
}

// wantWindow fails if fewer than these instances were left before the window had passed since the load ended. Some more
// may have come and gone by what was measured for a moment; annotations have whole seconds.
func (p *pool) wantWindow(t *testing.T, f *skipperpb.Function, instances int, since time.Time) {
	t.Helper()
	all := p.pods.claimed(f.GetTenant())
	early, drained := 0, 0
	for _, e := range all {
		text := e.pod.Annotations[drainingAtNote]
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Errorf("pod %s: %v", e.pod.Name, err)
		}
		if drained++; at.Before(since.Add(window - 2*time.Second)) {
			early++
		}
	}
	if len(all)-early < instances || drained == 0 {
		t.Errorf("of %d instances %d were told to drain, %d of them within %s of the end of the load at %s: want %d left until then",
			len(all), drained, early, window, since.Format(time.RFC3339), instances)
	}
}

// A function with a target of 10 requests in flight follows 5, 60 and 5 of them: 1, 6 and 1 instances. Red: requests
// are not counted, or counted twice; a downscale comes too soon or never, or cuts a request.
func inFlightStory(t *testing.T, s *stage) {
	const few, many, target, slow = 5, 60, 10, "/slow?for=1s"
	p := s.newPool(t, 6)
	f := p.function("a")
	f.Scale = &skipperpb.Scale{MaxInstances: 10, TargetInFlightRequests: target}
	mustEcho(t, p.get(t.Context(), f, "/"))
	stay := startCrowd(t, p, f, few, slow)
	during(t, 5*time.Second, func() {
		if n := len(p.serving(f)); n > 1 {
			t.Fatalf("%d requests in flight have %d instances, want 1:%s", few, n, p.pods)
		}
	})
	begun := time.Now()
	come := startCrowd(t, p, f, many-few, slow)
	p.waitInstances(t, f, many/target)
	grown := time.Since(begun)
	during(t, window, func() {
		if n := len(p.serving(f)); n < many/target || n > many/target+1 { // one request may end as another begins
			t.Fatalf("%d requests in flight have %d instances, want %d:%s", many, n, many/target, p.pods)
		}
	})
	served := come.stop(t)
	stopped := time.Now()
	p.waitInstances(t, f, 1)
	t.Logf("%d instances %s after the load grew from %d to %d; one again %s after it fell; %d requests served",
		many/target, grown.Round(100*time.Millisecond), few, many, time.Since(stopped).Round(100*time.Millisecond), served+stay.stop(t))
	p.wantWindow(t, f, many/target, stopped)
}

func (p *pool) waitInstances(t *testing.T, f *skipperpb.Function, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " instances of ", f.GetTenant()), func() (bool, string) { return len(p.serving(f)) == n, p.pods.String() })
}

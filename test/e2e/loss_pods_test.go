//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
)

// lossSettings make the controller act within seconds, so that much happens under each request.
func lossSettings(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"SKIPPER_HEARTBEAT_TIMEOUT": "15s", "SKIPPER_SCALE_INTERVAL": "1s", "SKIPPER_HPA_DOWNSCALE_STABILIZATION": "5s",
		"SKIPPER_DRAIN_TIMEOUT": drainTimeout(t).String(),
	}
}

const (
	lossTenants   = 2
	lossInstances = 2 // of each tenant
	// storiesAtOnce are so few because the one kubelet of a machine with two cores would otherwise take longer to start
	// a pod than a request is held, and that is no loss of Skipper.
	storiesAtOnce = 3
	// longGrace lets a deleted pod end what it has begun.
	longGrace = 60
)

// drainTimeout is little longer than the streams and WebSockets of the stories.
func drainTimeout(t *testing.T) time.Duration {
	t.Helper()
	return lossExtent(t).mix.longest + 5*time.Second
}

// Pods come, go and change under requests of every kind, and no request is lost. Not parallel with other tests, since
// the settings hold for everybody; the stories have pools of their own and run beside each other.
func TestNoRequestIsLostWhenPods(t *testing.T) {
	w := newWorld(t)
	w.withController(t, lossSettings(t))
	var all sync.WaitGroup
	places := make(chan struct{}, storiesAtOnce)
	for name, story := range map[string]func(*testing.T, *world){
		"are scaled down":             scaleDownStory,
		"get another template":        rolloutStory,
		"are deleted":                 deletionStory,
		"are evicted":                 evictionStory,
		"are killed":                  killStory,
		"turn unready":                flapStory,
		"answer longer than timeouts": patientStory,
		"drain longer than they may":  endlessStory,
		"lose their extproc":          deadExtprocStory,
	} {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			t.Run(name, func(t *testing.T) { story(t, w) })
		})
	}
	all.Wait()
}

// tenants are functions with a fixed number of instances each.
func (p *pool) tenants(instances uint32) []*skipperpb.Function {
	functions := make([]*skipperpb.Function, lossTenants)
	for i := range functions {
		f := p.function(fmt.Sprint(i))
		f.Scale = &skipperpb.Scale{MinInstances: instances, MaxInstances: instances + 1}
		functions[i] = f
	}
	return functions
}

// underLoad runs rounds of a disturbance under traffic until enough requests are counted.
func (p *pool) underLoad(t *testing.T, functions []*skipperpb.Function, round func(i int)) *tally {
	t.Helper()
	want := lossExtent(t)
	tl := newTally()
	tr := startTraffic(t, p, tl, functions, want.mix)
	for _, f := range functions {
		p.waitServing(t, f, int(f.GetScale().GetMinInstances()))
	}
	for i := 0; i == 0 || tl.count() < want.requests; i++ {
		round(i)
	}
	tr.stop()
	return tl
}

// serving lists the instances of a function that may get new requests, as far as the pods tell.
func (p *pool) serving(f *skipperpb.Function) []entry {
	return p.pods.find(func(e entry) bool {
		notes := e.pod.Annotations
		return !e.gone && e.pod.DeletionTimestamp == nil && e.pod.Labels[tenantLabel] == f.GetTenant() &&
			notes[readyAtNote] != "" && notes[drainingAtNote] == ""
	})
}

// waitServing waits for n instances of a function, none of them one of the former.
func (p *pool) waitServing(t *testing.T, f *skipperpb.Function, n int, former ...entry) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d new instances of tenant %s", n, f.GetTenant()), func() (bool, string) {
		now := p.serving(f)
		for _, e := range now {
			for _, old := range former {
				if e.pod.UID == old.pod.UID {
					return false, p.pods.String()
				}
			}
		}
		return len(now) == n, p.pods.String()
	})
}

// A crowd has each function scaled up; when it leaves, the instances are drained under requests that stay.
func scaleDownStory(t *testing.T, w *world) {
	const instances, target, crowd = 4, 4, 14
	p := w.newPool(t, instances)
	functions := p.tenants(1)
	for _, f := range functions {
		f.Scale.MaxInstances, f.Scale.TargetInFlightRequests = instances, target
	}
	want := lossExtent(t)
	tl := newTally()
	light := startTraffic(t, p, tl, functions, want.mix.only(get, upload))
	for i := 0; i == 0 || tl.count() < want.requests; i++ {
		many := startTraffic(t, p, tl, functions, mix{senders: map[kind]int{stream: crowd}, shortest: 3 * time.Second})
		for _, f := range functions {
			p.waitServing(t, f, instances)
		}
		stay := want.mix.only(stream, socket)
		stay.once = true
		few := startTraffic(t, p, tl, functions, stay)
		many.stop()
		few.wait()
		p.waitScaledDown(t, functions)
	}
	light.stop()
	tl.wantNoLoss(t, never)
	tl.wantNoneDeletedUnder(t, p.pods)
	if n := tl.servedWhileDraining(p.pods); n == 0 {
		t.Error("no long request was in progress on a pod that was drained: the test shows nothing")
	} else {
		t.Logf("%d long requests went on while their pods drained", n)
	}
}

// waitScaledDown waits until half of a function's instances or less are left.
func (p *pool) waitScaledDown(t *testing.T, functions []*skipperpb.Function) {
	t.Helper()
	for _, f := range functions {
		eventually(t, "fewer instances of tenant "+f.GetTenant(), func() (bool, string) {
			return len(p.pods.held(f.GetTenant())) <= int(f.GetScale().GetMaxInstances())/2, p.pods.String()
		})
	}
}

// A new template, as by kubectl set image: every instance is replaced by one of the new ReplicaSet.
func rolloutStory(t *testing.T, w *world) {
	p := w.newPool(t, 3)
	functions := p.tenants(lossInstances)
	tl := p.underLoad(t, functions, func(i int) {
		before := map[string][]entry{}
		for _, f := range functions {
			before[f.GetTenant()] = p.serving(f)
		}
		p.changeTemplate(t, fmt.Sprint(i))
		if err := p.waitRollout(t.Context(), p.functions, p.name); err != nil { // the old ReplicaSet is at zero then
			t.Fatal(err)
		}
		for _, f := range functions {
			p.waitServing(t, f, lossInstances, before[f.GetTenant()]...)
		}
		for _, f := range functions {
			for _, old := range before[f.GetTenant()] {
				p.waitGone(t, old.pod.UID)
			}
		}
	})
	tl.wantNoLoss(t, never)
	tl.wantNoneDeletedUnder(t, p.pods)
}

// changeTemplate makes the Deployment roll out.
func (p *pool) changeTemplate(t *testing.T, value string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []map[string]any{{"name": modelPool, "env": []map[string]string{{"name": "SKIPPER_E2E_VERSION", "value": value}}}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.kube.AppsV1().Deployments(p.functions).Patch(t.Context(), p.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// withLongGrace lets pods end what they have begun after they are deleted.
func withLongGrace(d *appsv1.Deployment) {
	grace := int64(longGrace)
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	withArgs(fmt.Sprintf("--grace=%ds", longGrace-5))(d)
}

// Instances are deleted one after the other in the usual way.
func deletionStory(t *testing.T, w *world) {
	p := w.newPool(t, 4, withLongGrace)
	functions := p.tenants(lossInstances)
	tl := p.underLoad(t, functions, func(int) {
		for _, f := range functions {
			for _, e := range p.serving(f) {
				p.remove(t, e, metav1.DeleteOptions{})
				p.waitServing(t, f, lossInstances, e)
			}
		}
	})
	tl.wantNoLoss(t, never)
}

func (p *pool) remove(t *testing.T, e entry, options metav1.DeleteOptions) {
	t.Helper()
	err := p.kube.CoreV1().Pods(p.functions).Delete(t.Context(), e.pod.Name, options)
	if ignore(err, apierrors.IsNotFound) != nil {
		t.Fatal(err)
	}
}

// All instances of a tenant are evicted at once, as kubectl drain does.
func evictionStory(t *testing.T, w *world) {
	p := w.newPool(t, 4, withLongGrace)
	functions := p.tenants(lossInstances)
	tl := p.underLoad(t, functions, func(int) {
		for _, f := range functions {
			before := p.serving(f)
			for _, e := range before {
				eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: e.pod.Name, Namespace: p.functions}}
				if err := p.kube.PolicyV1().Evictions(p.functions).Evict(t.Context(), eviction); err != nil {
					t.Fatal(err)
				}
			}
			p.waitServing(t, f, lossInstances, before...)
		}
	})
	tl.wantNoLoss(t, never)
}

// Instances are killed without a word: one of each tenant by the API, one by a crash of its program, which the kubelet
// starts anew in the same pod. What they were working on is told apart; everything else is served by others.
func killStory(t *testing.T, w *world) {
	p := w.newPool(t, 4)
	functions := p.tenants(lossInstances)
	var dead []death
	tl := p.underLoad(t, functions, func(int) {
		for _, f := range functions {
			e := p.serving(f)[0]
			now := int64(0)
			dead = append(dead, death{e.pod.UID, time.Now()})
			p.remove(t, e, metav1.DeleteOptions{GracePeriodSeconds: &now})
			p.waitServing(t, f, lossInstances, e)

			e = p.serving(f)[0]
			dead = append(dead, death{e.pod.UID, time.Now()})
			processOf(t, e.pod, "echo").kill(t)
			p.waitRestarted(t, e)
			p.waitServing(t, f, lossInstances)
		}
	})
	tl.wantNoLoss(t, killedBy(dead))
}

// waitRestarted waits until the kubelet has started a pod's container anew, or somebody removed the pod.
func (p *pool) waitRestarted(t *testing.T, was entry) {
	t.Helper()
	eventually(t, "a new start of pod "+was.pod.Name, func() (bool, string) {
		e, _ := p.pods.entry(was.pod.UID)
		return e.gone || restarts(e) > restarts(was) && isReady(e.pod), p.pods.String()
	})
}

// Instances turn unready and ready again. New requests may go elsewhere, and the instances may be replaced; but what
// runs on them goes on, and is forgotten when it is over.
func flapStory(t *testing.T, w *world) {
	const flaps = 15
	p := w.newPool(t, 4)
	functions := p.tenants(lossInstances)
	tl := p.underLoad(t, functions, func(int) {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for i := range flaps {
			for _, f := range functions {
				for _, e := range p.pods.held(f.GetTenant()) {
					p.setReady(t, e, i%2 == 1)
				}
			}
			<-ticker.C
		}
	})
	tl.wantNoLoss(t, never)
	tl.wantNoneDeletedUnder(t, p.pods)
	p.waitForgotten(t)
}

// setReady says in the kubelet's place whether a pod is ready; the kubelet puts it right after a while.
func (p *pool) setReady(t *testing.T, e entry, ready bool) {
	t.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{
		{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now(), Reason: "Flapping"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.kube.CoreV1().Pods(p.functions).Patch(t.Context(), e.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if ignore(err, apierrors.IsNotFound) != nil {
		t.Fatal(err)
	}
}

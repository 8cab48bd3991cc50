package pool

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"skipper/proto/fn"
	"skipper/xds"
)

// freePod is an unclaimed pod of pool prod/echo.
func freePod(uid string, version uint64) Pod {
	return Pod{
		Namespace: "prod", Name: "pod-" + uid, UID: uid, IP: "10.0.0.1", Port: 80, Protocol: xds.HTTP1, Deployment: "echo",
		ReplicaSet: "rs", OwnedByReplicaSet: true, Ready: true, Phase: corev1.PodRunning, Version: version,
	}
}

// claimed is p as a claim for the tenant leaves it.
func claimed(p Pod, tenant string, version uint64) Pod {
	f := testFunction(tenant)
	p.Marked, p.Tenant, p.Function, p.Key = true, tenant, f, fn.KeyOf(f)
	p.OwnedByReplicaSet, p.AssignedAt, p.Version = false, noon, version
	return p
}

func stateOfA(t *testing.T, v *View) State {
	t.Helper()
	p, ok := v.Pod("a")
	if !ok {
		t.Fatal("pod a is unknown")
	}
	return p.State()
}

func TestClaimIsNotUndoneByALaggingInformer(t *testing.T) {
	v := NewView()
	v.Apply(freePod("a", 10))
	v.ExpectWritten(claimed(freePod("a", 10), "t1", 20))
	v.Apply(freePod("a", 15)) // a status change from before the claim
	if got := stateOfA(t, v); got != Assigned {
		t.Errorf("pod is %s after an older event, want assigned", got)
	}
	if n := len(v.Unassigned("prod", "echo")); n != 0 {
		t.Errorf("%d pods to claim, want 0", n)
	}
	if w := v.Watermark("prod"); w != 15 {
		t.Errorf("watermark %d, want 15: the reply to our own write does not count", w)
	}
	v.Apply(freePod("a", 21)) // later than the claim: somebody removed it
	if got := stateOfA(t, v); got != Unassigned {
		t.Errorf("pod is %s after a newer event, want unassigned", got)
	}
}

func TestReplyOlderThanTheInformerChangesNothing(t *testing.T) {
	v := NewView()
	v.Apply(claimed(freePod("a", 10), "t1", 30))
	v.ExpectWritten(claimed(freePod("a", 10), "t2", 20))
	if p, _ := v.Pod("a"); p.Tenant != "t1" {
		t.Errorf("tenant %s, want t1", p.Tenant)
	}
}

func TestReadyAndDrainingBeforeTheInformerSaysSo(t *testing.T) {
	v := NewView()
	v.Apply(claimed(freePod("a", 10), "t1", 20))
	v.ExpectReady("a", 0, noon.Add(time.Second))
	if p, _ := v.Pod("a"); !p.Routable() {
		t.Error("accepted pod is not routable")
	}
	v.ExpectDraining("a", noon.Add(time.Minute))
	v.Apply(claimed(freePod("a", 10), "t1", 25)) // shows neither yet
	p, _ := v.Pod("a")
	if p.State() != Draining || !p.DrainingAt.Equal(noon.Add(time.Minute)) || p.ReadyAt.IsZero() {
		t.Errorf("pod is %s, draining at %s, ready at %s", p.State(), p.DrainingAt, p.ReadyAt)
	}
	v.ForgetDraining("a")
	if got := stateOfA(t, v); got != Ready {
		t.Errorf("pod is %s after the drain was undone, want ready", got)
	}
}

// A list that was built before the pod accepted does not have it. The answer
// that names the pod must count as newer, or the pod would pass for removed.
func TestAcceptedPodIsNewerThanListsWithoutIt(t *testing.T) {
	v := NewView()
	v.Apply(claimed(freePod("a", 10), "t1", 20))
	v.Apply(freePod("b", 50)) // other news of the namespace
	v.ExpectReady("a", 0, noon)
	if p, _ := v.Pod("a"); p.Version < v.Watermark("prod") {
		t.Errorf("version %d is below the watermark %d", p.Version, v.Watermark("prod"))
	}
}

func TestRestartedPodIsNotReadyUntilItAcceptsAgain(t *testing.T) {
	restarted := func(version uint64, restarts int32) Pod {
		p := claimed(freePod("a", 10), "t1", version)
		p.Restarts, p.Forgotten = restarts, restarts > 0
		return p
	}
	v := NewView()
	v.Apply(restarted(20, 0))
	v.ExpectReady("a", 0, noon)
	v.Apply(restarted(30, 1))
	if got := stateOfA(t, v); got != Assigned {
		t.Errorf("pod is %s after its container restarted, want assigned", got)
	}
	v.ExpectReady("a", 0, noon) // an acceptance from before the restart arrives late
	if got := stateOfA(t, v); got != Assigned {
		t.Errorf("pod is %s by what it accepted before, want assigned", got)
	}
	v.ExpectReady("a", 1, noon)
	if p, _ := v.Pod("a"); !p.Routable() || p.Forgotten {
		t.Errorf("pod that accepted again is %s, forgotten %t", p.State(), p.Forgotten)
	}
}

func TestDeletionIsNeverUndone(t *testing.T) {
	v := NewView()
	v.Apply(claimed(freePod("a", 10), "t1", 20))
	v.ExpectDeleted("a")
	v.Apply(claimed(freePod("a", 10), "t1", 99))
	if got := stateOfA(t, v); got != Terminating {
		t.Errorf("pod is %s, want terminating", got)
	}
	if n := len(v.Instances(fn.KeyOf(testFunction("t1")))); n != 0 {
		t.Errorf("%d instances, want 0", n)
	}
	v.Remove("prod", "a", 100)
	v.ExpectReady("a", 0, noon) // a late write of ours
	if _, ok := v.Pod("a"); ok || len(v.All()) != 0 {
		t.Error("a removed pod came back")
	}
	if !v.Known("prod", "echo") || v.Known("prod", "other") {
		t.Error("a pool is known once a pod of it was ever seen, and only then")
	}
}

func TestNamedIsTheNewestPodOfTheName(t *testing.T) {
	v := NewView()
	a, b := freePod("a", 1), freePod("b", 2)
	a.Name, b.Name = "same", "same"
	v.Apply(a)
	v.Apply(b)
	v.Remove("prod", "a", 3)
	if p, ok := v.Named("prod", "same"); !ok || p.UID != "b" {
		t.Errorf("named pod is %q, want b", p.UID)
	}
}

func TestReplicaSetsNewestActiveFirst(t *testing.T) {
	v := NewView()
	at := func(name string, replicas int32, revision int64, created time.Time) {
		v.ApplyReplicaSet(ReplicaSet{"prod", name, "echo", replicas, revision, created})
	}
	at("old-active", 3, 4, noon)
	at("newest-idle", 0, 9, noon)
	at("new-active", 1, 5, noon)
	at("no-revision-later", 1, 0, noon.Add(time.Hour))
	at("no-revision", 1, 0, noon)
	at("gone", 1, 99, noon)
	v.RemoveReplicaSet(ReplicaSet{Namespace: "prod", Name: "gone", Deployment: "echo"})
	v.ApplyReplicaSet(ReplicaSet{Namespace: "prod", Name: "not-ours", Replicas: 1})
	var got []string
	for _, r := range v.ReplicaSets("prod", "echo") {
		got = append(got, r.Name)
	}
	want := []string{"new-active", "old-active", "no-revision-later", "no-revision", "newest-idle"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestIndexesAgreeWithANaiveView applies random events and then compares every
// index with what a walk over all pods finds.
func TestIndexesAgreeWithANaiveView(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := NewView()
		for step := range uint64(300) {
			randomEvent(r, v, step+1)
		}
		checkIndexes(t, v)
	}
}

func randomEvent(r *rand.Rand, v *View, version uint64) {
	uid := fmt.Sprint(r.IntN(12))
	p := freePod(uid, version-min(version, uint64(r.IntN(4))))
	if r.IntN(3) > 0 {
		p = claimed(p, fmt.Sprint("t", r.IntN(3)), p.Version)
		p.AssignedAt = noon.Add(time.Duration(r.IntN(5)) * time.Second)
	}
	p.Draining, p.Deleting = r.IntN(4) == 0, r.IntN(6) == 0
	if r.IntN(6) == 0 {
		p.Phase = corev1.PodFailed
	}
	switch r.IntN(8) {
	case 0:
		v.Remove("prod", uid, version)
	case 1:
		v.ExpectWritten(p)
	case 2:
		v.ExpectReady(uid, 0, noon)
	case 3:
		v.ExpectDraining(uid, noon)
	case 4:
		v.ForgetDraining(uid)
	default:
		v.Apply(p)
	}
}

// indexed is what the View's indexes hold, by UID.
type indexed struct {
	Instances            map[fn.Key][]string
	Unassigned, Retiring []string
}

func checkIndexes(t *testing.T, v *View) {
	t.Helper()
	got := indexed{Instances: map[fn.Key][]string{}}
	for _, k := range v.Functions() {
		for _, p := range v.Instances(k) {
			got.Instances[k] = append(got.Instances[k], p.UID)
		}
	}
	for _, p := range v.Unassigned("prod", "echo") {
		got.Unassigned = append(got.Unassigned, p.UID)
	}
	slices.Sort(got.Unassigned)
	for _, p := range v.Retiring() {
		got.Retiring = append(got.Retiring, p.UID)
	}
	if diff := gocmp.Diff(naiveIndexes(v.All()), got); diff != "" {
		t.Fatalf("indexes (-naive +view):\n%s", diff)
	}
}

func naiveIndexes(pods []Pod) indexed {
	out := indexed{Instances: map[fn.Key][]string{}}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	for _, p := range pods {
		switch s := p.State(); {
		case s == Unassigned:
			out.Unassigned = append(out.Unassigned, p.UID)
		case s == Draining || s == Dead && p.Marked:
			out.Retiring = append(out.Retiring, p.UID)
		}
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return a.AssignedAt.Compare(b.AssignedAt) })
	for _, p := range pods {
		if s := p.State(); s == Assigned || s == Ready || s == Draining {
			out.Instances[p.Key] = append(out.Instances[p.Key], p.UID)
		}
	}
	return out
}

// BenchmarkApply shows that an event's cost does not grow with the pods.
func BenchmarkApply(b *testing.B) {
	for _, pods := range []int{1_000, 50_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			v := NewView()
			uids := make([]string, pods)
			for i := range pods {
				uids[i] = fmt.Sprint(i)
				v.Apply(claimed(freePod(uids[i], 1), fmt.Sprint("t", i/5), 1))
			}
			version := uint64(1)
			for b.Loop() {
				version++
				p := claimed(freePod(uids[version%uint64(pods)], version), fmt.Sprint("t", version%uint64(pods)/5), version)
				p.Ready = version/uint64(pods)%2 == 0
				v.Apply(p)
			}
		})
	}
}

package claim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
)

func free(uid, replicaSet string) *pool.Pod {
	p := pool.FromPod(readyPod(1), pool.NewParser(1))
	p.UID, p.Name, p.ReplicaSet = uid, uid, replicaSet
	return &p
}

func TestUnusable(t *testing.T) {
	tests := []struct {
		name   string
		change func(*pool.Pod)
		want   string
	}{
		{"fit", func(*pool.Pod) {}, ""},
		{"claimed", func(p *pool.Pod) { p.Marked = true }, "assigned"},
		{"failed", func(p *pool.Pod) { p.Phase = corev1.PodFailed }, "dead"},
		{"deleting", func(p *pool.Pod) { p.Deleting = true }, "terminating"},
		{"host network", func(p *pool.Pod) { p.HostNetwork = true }, "hostNetwork"},
		{"no port", func(p *pool.Pod) { p.Port, p.Problem = 0, "the problem" }, "the problem"},
		{"protocol", func(p *pool.Pod) { p.Protocol, p.Problem = "", "the problem" }, "the problem"},
		{"made with ready-at", func(p *pool.Pod) { p.Spoiled, p.Problem = true, "the problem" }, "the problem"},
		{"no owner", func(p *pool.Pod) { p.OwnedByReplicaSet = false }, "ReplicaSet"},
		{"no address", func(p *pool.Pod) { p.IP = "" }, "address"},
		{"unready", func(p *pool.Pod) { p.Ready = false }, "not ready"},
	}
	for _, tt := range tests {
		p := free("a", "rs")
		tt.change(p)
		if got := Unusable(p); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRankNewestActiveReplicaSetFirst(t *testing.T) {
	sets := []pool.ReplicaSet{{Name: "new", Replicas: 1}, {Name: "old", Replicas: 2}, {Name: "idle"}}
	pods := []*pool.Pod{free("a", "idle"), free("b", "old"), free("c", "unknown"), free("d", "new"), free("e", "new")}
	r := Rank(Question{Pods: pods, ReplicaSets: sets, Limit: 10})
	var got []string
	for _, p := range r.Best {
		got = append(got, p.ReplicaSet)
	}
	slices.Sort(got[3:])
	if diff := cmp.Diff([]string{"new", "new", "old", "idle", "unknown"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestRankCountsAndExplains(t *testing.T) {
	unready := free("b", "rs")
	unready.Ready = false
	q := Question{Pods: []*pool.Pod{free("c", "rs"), unready, free("a", "rs")}, Limit: 0, Allowed: func(p *pool.Pod) (bool, string) {
		return p.UID != "a", "its address is still in use"
	}}
	want := Ranking{Usable: 1, Total: 3, Why: "pod a: its address is still in use"}
	if diff := cmp.Diff(want, Rank(q)); diff != "" {
		t.Errorf("ranking (-want +got):\n%s", diff)
	}
}

// TestRankAgreesWithSorting compares the best few with a full sort.
func TestRankAgreesWithSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	sets := []pool.ReplicaSet{{Name: "rs1", Replicas: 1}, {Name: "rs2", Replicas: 1}}
	for range 200 {
		var pods []*pool.Pod
		for i := range r.IntN(40) {
			pods = append(pods, free(fmt.Sprint(r.Uint64(), i), fmt.Sprint("rs", r.IntN(3))))
		}
		spread := Spread{Self: "a", Replicas: []string{"a", "b", "c"}}
		all := Rank(Question{Pods: pods, ReplicaSets: sets, Spread: spread, Limit: len(pods)}).Best
		if len(all) != len(pods) {
			t.Fatalf("%d of %d pods ranked", len(all), len(pods))
		}
		limit := r.IntN(10)
		slices.Reverse(pods)
		got := Rank(Question{Pods: pods, ReplicaSets: sets, Spread: spread, Limit: limit}).Best
		if !slices.Equal(all[:min(limit, len(all))], got) {
			t.Fatalf("the best %d of %d are not those of a full sort", limit, len(all))
		}
	}
}

// TestReplicasSeldomMeet: of what each of three replicas takes first, nothing
// is another's.
func TestReplicasSeldomMeet(t *testing.T) {
	names := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	var pods []*pool.Pod
	for i := range 300 {
		pods = append(pods, free(fmt.Sprintf("uid-%d", i), "rs"))
	}
	taken := map[string]string{}
	for _, n := range names {
		for _, p := range Rank(Question{Pods: pods, Spread: Spread{Self: n, Replicas: names}, Limit: 70}).Best {
			if other, ok := taken[p.UID]; ok {
				t.Errorf("%s is wanted by %s and %s", p.UID, other, n)
			}
			taken[p.UID] = n
		}
	}
}

// TestReplicaWithManyCallersMeetsOthersLast: one that has used its favourites up
// takes what the others would take last.
func TestReplicaWithManyCallersMeetsOthersLast(t *testing.T) {
	names := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	var pods []*pool.Pod
	for i := range 300 {
		pods = append(pods, free(fmt.Sprintf("uid-%d", i), "rs"))
	}
	taken := map[string]string{}
	for i, n := range names {
		limit := []int{160, 50, 50}[i]
		for _, p := range Rank(Question{Pods: pods, Spread: Spread{Self: n, Replicas: names}, Limit: limit}).Best {
			if other, ok := taken[p.UID]; ok {
				t.Errorf("%s is wanted by %s and %s", p.UID, other, n)
			}
			taken[p.UID] = n
		}
	}
}

func BenchmarkRankOneOf5000(b *testing.B) {
	var pods []*pool.Pod
	for i := range 5000 {
		pods = append(pods, free(fmt.Sprintf("uid-%d", i), "rs"))
	}
	q := Question{Pods: pods, ReplicaSets: []pool.ReplicaSet{{Name: "rs", Replicas: 1}}, Spread: Spread{Self: "a", Replicas: []string{"a", "b", "c"}}, Limit: 1}
	for b.Loop() {
		Rank(q)
	}
}

// Envoy may not know a pod that was made a moment ago.
func TestFreshPodsAreTakenLast(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sets := []pool.ReplicaSet{{Name: "new", Replicas: 1}, {Name: "old", Replicas: 1}}
	var pods []*pool.Pod
	for _, row := range []struct {
		uid, replicaSet string
		age             time.Duration
	}{{"a", "new", time.Second}, {"b", "new", 3 * time.Second}, {"c", "old", time.Hour}, {"d", "new", -time.Second}, {"e", "old", 0}} {
		p := *free(row.uid, row.replicaSet)
		p.CreatedAt = now.Add(-row.age)
		pods = append(pods, &p)
	}
	var got []string
	for _, p := range Rank(Question{Pods: pods, ReplicaSets: sets, Limit: 10, Now: now}).Best {
		got = append(got, p.UID)
	}
	if got[0] != "b" || got[3] != "c" || got[4] != "e" || len(got) != 5 {
		t.Errorf("order %v, want b, then the fresh a and d, then c of the old ReplicaSet and the fresh e", got)
	}
}

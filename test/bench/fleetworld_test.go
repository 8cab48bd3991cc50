package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

func readFleet(w fleetWorld) []pool.Pod {
	functions := pool.NewParser(max(w.functions, 1))
	var out []pool.Pod
	for _, o := range w.objects(time.Now()) {
		if p, ok := o.(*corev1.Pod); ok {
			out = append(out, pool.FromPod(p, functions))
		}
	}
	return out
}

// What the controller reads of the fleet is what the benchmark says of it.
func TestFleetWorld(t *testing.T) {
	w := fleetWorld{pods: 300, functions: 20}
	states, keys, addrs := map[pool.State]int{}, map[fn.Key]bool{}, map[string]bool{}
	for _, p := range readFleet(w) {
		states[p.State()]++
		addrs[p.Addr()] = true
		if p.Problem != "" || !p.Ready || p.ReplicaSet == "" || p.OwnedByReplicaSet == p.Marked {
			t.Fatalf("pod %+v", p)
		}
		if p.Routable() {
			keys[p.Key] = true
		}
	}
	if states[pool.Ready] != 20 || states[pool.Unassigned] != 280 || len(keys) != 20 || len(addrs) != 300 {
		t.Errorf("states %v, %d functions, %d addresses", states, len(keys), len(addrs))
	}
	if got := w.metrics(fleetNamespace); len(got) != 20 {
		t.Errorf("metrics of %d pods, want 20", len(got))
	}
}

package pool_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/controller/pool"
)

func TestPoolsHaveAReplicaSetOrAPod(t *testing.T) {
	v := pool.NewView()
	v.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "z-1", Deployment: "z"})
	v.ApplyReplicaSet(pool.ReplicaSet{Namespace: "dev", Name: "z-1", Deployment: "z"})
	v.Apply(pool.Pod{Namespace: "prod", Name: "a", UID: "a", Deployment: "a"})
	v.Apply(pool.Pod{Namespace: "prod", Name: "gone", UID: "gone", Deployment: "gone"})
	v.Remove("prod", "gone", 1)
	want := []pool.Name{{Namespace: "dev", Deployment: "z"}, {Namespace: "prod", Deployment: "a"}, {Namespace: "prod", Deployment: "z"}}
	if d := cmp.Diff(want, v.Pools()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

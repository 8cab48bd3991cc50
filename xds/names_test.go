package xds_test

import (
	"fmt"
	"testing"
	"time"

	"skipper/proto/fn"
	"skipper/xds"
)

func TestClusterNameIsPaddedAndPlain(t *testing.T) {
	for _, row := range []struct {
		protocol xds.Protocol
		shard    int
		want     string
	}{
		{xds.HTTP1, 0, "skipper-http1-000"},
		{xds.HTTP1, 7, "skipper-http1-007"},
		{xds.H2C, 255, "skipper-h2c-255"},
		{xds.H2C, 1023, "skipper-h2c-1023"},
	} {
		if got := xds.ClusterName(row.protocol, row.shard); got != row.want {
			t.Errorf("ClusterName(%s, %d) = %q, want %q", row.protocol, row.shard, got, row.want)
		}
	}
}

func TestShardOfFollowsFromTheUIDAlone(t *testing.T) {
	// Pinned: a controller that places a pod elsewhere than its peers do would
	// tell extprocs a cluster that their Envoy has the pod in no longer.
	for uid, want := range map[string]int{
		"": 0x99, "a": 0x5b, "6f9e0a5c-3a5e-4c1e-9f0e-2d5b1c7a8e90": 0xef,
	} {
		if got := xds.ShardOf(uid, 256); got != want {
			t.Errorf("ShardOf(%q, 256) = %#x, want %#x", uid, got, want)
		}
	}
	if got := xds.ShardClusterOf(xds.H2C, "", 256); got != "skipper-h2c-153" {
		t.Errorf("ShardClusterOf = %q", got)
	}
	if got := xds.ClusterOf(xds.H2C, "", 256); got != "skipper-h2c-153-routed" {
		t.Errorf("ClusterOf = %q", got)
	}
}

func TestShardsAreEvenlyUsed(t *testing.T) {
	const pods = 50_000
	count := make([]int, xds.DefaultShards)
	for i := range pods {
		count[xds.ShardOf(fmt.Sprintf("00000000-0000-4000-8000-%012d", i), xds.DefaultShards)]++
	}
	mean := pods / xds.DefaultShards
	for shard, n := range count {
		if n < mean/2 || n > mean*2 {
			t.Errorf("shard %d has %d pods, mean is %d", shard, n, mean)
		}
	}
}

func TestInstancesNameRoundTrips(t *testing.T) {
	for _, k := range []fn.Key{
		{Namespace: "prod", Deployment: "echo-server", Tenant: "tenant-123"},
		{Namespace: "prod", Deployment: "echo.server", Tenant: "T_1", Oneshot: true},
		{Namespace: "prod", Deployment: "echo", Tenant: "oneshot"},
	} {
		got, err := xds.ParseInstancesName(xds.InstancesName(k))
		if err != nil || got != k {
			t.Errorf("ParseInstancesName(%q) = %+v, %v", xds.InstancesName(k), got, err)
		}
	}
}

func TestParseInstancesNameRefusesWhatIsNoName(t *testing.T) {
	for _, name := range []string{
		"", "*", "/", "//", "a/b", "a/b/", "/b/c", "a//c", "a/b/c/", "a/b/c/one", "a/b/c/oneshot/", "a/b/c/oneshot/x",
		"A/b/c", "a/B/c", "a/b/-c", "a/b/c d", "a/b/\xff", "a/b/c\x00", " a/b/c",
	} {
		if k, err := xds.ParseInstancesName(name); err == nil {
			t.Errorf("ParseInstancesName(%q) = %+v, want an error", name, k)
		}
	}
}

func FuzzParseInstancesName(f *testing.F) {
	for _, seed := range []string{"prod/echo/t1", "prod/echo/t1/oneshot", "a/b", "*", "a/b/c/d/e", "a/b/\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k, err := xds.ParseInstancesName(name)
		if err == nil && xds.InstancesName(k) != name {
			t.Errorf("%q was read as %+v, whose name is %q", name, k, xds.InstancesName(k))
		}
	})
}

func TestStalenessAdvice(t *testing.T) {
	for d, want := range map[time.Duration]bool{time.Second: true, xds.LeastStaleness - 1: true, xds.LeastStaleness: false, 5 * time.Minute: false} {
		if got := xds.StalenessAdvice(d); (got != "") != want {
			t.Errorf("%s: %q, want some advice: %v", d, got, want)
		}
	}
}

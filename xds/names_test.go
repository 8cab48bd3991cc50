package xds_test

import (
	"fmt"
	"testing"

	"skipper/proto/fn"
	"skipper/xds"
)

func TestClusterNamesArePinned(t *testing.T) {
	for want, got := range map[string]string{
		"skipper-http1-000":  xds.ClusterName(xds.HTTP1, 0),
		"skipper-h2c-255":    xds.ClusterName(xds.H2C, 255),
		"skipper-http1-1023": xds.ClusterName(xds.HTTP1, 1023),
		"ns/d/t/oneshot":     xds.InstancesName(fn.Key{Namespace: "ns", Deployment: "d", Tenant: "t", Oneshot: true}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestShardsFillEvenly(t *testing.T) {
	n := map[string]int{}
	const pods = 256 * 100
	for i := range pods {
		n[xds.ClusterOf(xds.HTTP1, fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), xds.DefaultShards)]++
	}
	if len(n) != xds.DefaultShards {
		t.Fatalf("%d clusters used, want %d", len(n), xds.DefaultShards)
	}
	for c, k := range n {
		if k < 50 || k > 150 {
			t.Errorf("%s holds %d of %d pods", c, k, pods)
		}
	}
}

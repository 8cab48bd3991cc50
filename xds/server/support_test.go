package server_test

import (
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	skipperpb "skipper/proto"
	"skipper/xds"
)

func protoList(l ...*skipperpb.FunctionInstances) []*skipperpb.FunctionInstances { return l }

// uidIn is a pod UID whose shard is the given one.
func uidIn(shard int) string {
	for i := 0; ; i++ {
		if uid := "pod-" + strconv.Itoa(i); xds.ShardOf(uid, shards) == shard {
			return uid
		}
	}
}

// metric is the value of a series with one label, or none for "".
func metric(t *testing.T, r *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

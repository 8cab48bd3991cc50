package main

import (
	"flag"
	"strings"
	"testing"
	"time"

	"skipper/controller/config"
	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
	"skipper/test/metricspage"
)

var update = flag.Bool("update", false, "rewrite the controller's table of docs/metrics.md")

// What a controller with TLS shows that has only just begun, but for one call
// and one stream, is the table of the page: so a metric that only appears when
// something has gone wrong is missing here.
func TestMetricsAreDocumented(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := startCrowd(t, 1, 1, func(c *config.Config) { c.InsecurePlaintext, c.TLS = false, tlsFiles(t, a, identity.Controller) })
	stream, err := skipperpb.NewReplicaServiceClient(c.replicas[0].conn).ReportState(t.Context(), &skipperpb.ReportStateRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	metricspage.Hold(t, "controller", c.replicas[0].metrics(), *update)
}

// Nobody's name may become a label: a tenant, pod or function is one of many.
func TestLabelsAreBounded(t *testing.T) {
	w := startWorld(t, 2, nil)
	f := function("tenant-of-the-test")
	i, err := w.get(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Heartbeat(t.Context(), &skipperpb.HeartbeatRequest{
		RouterIp: "10.9.0.1", RouterId: "router-of-the-test", EnvoyNodeId: "envoy-of-the-test",
		Heartbeats: []*skipperpb.Heartbeat{{Function: f, FailuresByInstance: map[string]uint32{i.GetUid(): 1}}},
	}); err != nil {
		t.Fatal(err)
	}
	text := w.metrics()
	for _, name := range []string{f.GetTenant(), "router-of-the-test", "envoy-of-the-test", i.GetName() + `"`, i.GetUid(), i.GetAddr()} {
		if strings.Contains(text, name) {
			t.Errorf("metrics name %s", name)
		}
	}
	for _, line := range []string{
		`skipper_controller_claims_total{outcome="won"} 1`, `skipper_controller_pool_pods{deployment="echo",namespace="functions",state="ready"} 1`,
		`skipper_controller_events_total{severity="info",type="pod_assigned"} 1`, `skipper_controller_ring_members 1`, `skipper_controller_routers 1`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("metrics have no line %s", line)
		}
	}
}

//go:build e2e

package multi_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
)

// The functions of a killed replica are converged by another: one whose load
// grows in that moment, and that nobody asks for, has a second instance in the end.
func TestKilledReplicasFunctionsAreTakenOver(t *testing.T) {
	w := newWorld(t, options{pool: 10, controllers: 3, args: quick})
	client := w.client(w.controllers[0].Addr())
	f := w.ownedBy(1)
	f.Scale.TargetInFlightRequests = 1
	if _, err := w.get(client, f); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	w.kill(1)
	beat := &skipperpb.HeartbeatRequest{RouterIp: "127.0.0.1", Heartbeats: []*skipperpb.Heartbeat{{Function: f, Timestamp: timestamppb.Now(), InFlightRequests: 2}}}
	if _, err := client.Heartbeat(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	w.eventually("another replica has scaled up", func() (bool, string) {
		n := 0
		for _, p := range w.list("skipper/tenant="+f.GetTenant(), "") {
			if p.Annotations["skipper/ready-at"] != "" {
				n++
			}
		}
		return n == 2, fmt.Sprint(n, " ready instances")
	})
	t.Logf("the function was converged by another %s after its replica was killed", time.Since(begun))
}

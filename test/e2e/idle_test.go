//go:build e2e

package e2e_test

import (
	"testing"
)

// idleSettings make a function idle within seconds. Not parallel: they hold for everybody.
func idleSettings() map[string]string {
	return map[string]string{
		"SKIPPER_HEARTBEAT_TIMEOUT": "10s", "SKIPPER_SCALE_INTERVAL": "1s", "SKIPPER_HPA_DOWNSCALE_STABILIZATION": "5s",
	}
}

// An idle function gives its pods back; a function that is used, if only by one open connection, keeps its pod.
func TestIdleFunctionScalesToZero(t *testing.T) {
	p := newWorld(t).newPool(t, 2)
	p.withController(t, idleSettings())
	idle := mustEcho(t, p.get(t.Context(), p.function("idle"), "/"))
	used := p.dialWebSocket(t, p.function("used"))
	p.waitGone(t, idle.PodUID)
	exchange(t, used, "still here")
	if held := p.pods.held(p.tenant("used")); len(held) != 1 {
		t.Errorf("the function in use has %d pods:%s", len(held), p.pods)
	}
	again := mustEcho(t, p.get(t.Context(), p.function("idle"), "/"))
	if again.PodUID == idle.PodUID {
		t.Errorf("pod %s came back from the dead", again.PodUID)
	}
	p.waitFull(t)
	p.wantClaims(t, p.tenant("idle"), 2)
	p.wantClaims(t, p.tenant("used"), 1)
}

package retire

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	limits := Limits{Timeout: 5 * time.Minute}
	draining := pool.Pod{Marked: true, ReadyAt: noon, Draining: true, DrainingAt: noon, Phase: corev1.PodRunning}
	unreadable, dead, evicted, ready, gone := draining, draining, draining, draining, draining
	unreadable.DrainingAt = time.Time{}
	dead.Phase = corev1.PodFailed
	evicted.Evicted = true
	ready.Draining = false
	free := pool.Pod{Phase: corev1.PodFailed}
	gone.Deleting = true
	none, two := Progress{true, InFlight{0, true}}, Progress{true, InFlight{2, true}}
	unheard, unknown := Progress{false, InFlight{0, true}}, Progress{Acknowledged: true}
	tests := []struct {
		name   string
		pod    pool.Pod
		in     Progress
		after  time.Duration
		want   Action
		reason string
	}{
		{"serving", ready, none, time.Hour, Wait, "ready"},
		{"empty", draining, none, 10 * time.Second, Delete, "0 requests"},
		{"empty as soon as all have heard", draining, none, time.Millisecond, Delete, "0 requests"},
		{"empty, but some router has not heard", draining, unheard, 4 * time.Minute, Wait, "not every router"},
		{"some router has not heard at the timeout", draining, unheard, 5 * time.Minute, Delete, "not every router"},
		{"busy", draining, two, time.Minute, Wait, "2 requests"},
		{"unknown", draining, unknown, 4 * time.Minute, Wait, "unknown"},
		{"busy at the timeout", draining, two, 5 * time.Minute, Delete, "2 requests"},
		{"unknown at the timeout", draining, unknown, 5 * time.Minute, Delete, "unknown"},
		{"zero that is not known", draining, unknown, time.Minute, Wait, "unknown"},
		{"clock a little behind", draining, two, -time.Minute, Wait, "2 requests"},
		{"began in the future", draining, none, -time.Hour, Annotate, "future"},
		{"began nobody knows when", unreadable, none, time.Hour, Annotate, "cannot be read"},
		{"failed", dead, two, 0, Delete, "failed"},
		{"evicted", evicted, none, time.Hour, Wait, "evicting"},
		{"never claimed and failed", free, none, time.Hour, Wait, "dead"},
		{"being deleted", gone, none, time.Hour, Wait, "terminating"},
	}
	for _, tt := range tests {
		got := Next(tt.pod, tt.in, noon.Add(tt.after), limits)
		if got.Action != tt.want || !strings.Contains(got.Reason, tt.reason) {
			t.Errorf("%s: %d %q, want %d %q", tt.name, got.Action, got.Reason, tt.want, tt.reason)
		}
	}
}

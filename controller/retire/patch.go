package retire

import (
	"encoding/json"
	"fmt"
	"time"

	"skipper/controller/pool"
)

// drainPatch takes effect only on the very pod, and only while it is the
// tenant's.
func drainPatch(p pool.Pod, at time.Time) []byte {
	ops := []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}{
		{"test", "/metadata/uid", p.UID},
		{"test", "/metadata/labels/skipper~1tenant", p.Tenant},
		{"add", "/metadata/annotations/skipper~1draining-at", pool.FormatTime(at)},
	}
	b, err := json.Marshal(ops)
	if err != nil { // strings always encode
		panic(fmt.Sprintf("encode drain: %v", err))
	}
	return b
}

package envoy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"skipper/envoy"
)

// logged returns the access log of a stopped Envoy.
func logged(t *testing.T, output string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		out = append(out, entry)
	}
	return out
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	for mode, want := range map[envoy.AccessLog][]string{
		envoy.AccessLogOff:    nil,
		envoy.AccessLogErrors: {"503 second_pass", "503 ingress"},
		envoy.AccessLogAll:    {"200 ingress", "503 second_pass", "503 ingress", "400 ingress"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, func(c *envoy.Config) { c.AccessLog = mode })
			g.serverPod(t, "fn", http.HandlerFunc(headersPod))
			g.processor.route("gone", http1Cluster, "192.0.2.1:80")
			g.do(t, g.request(t, http.MethodGet, "fn", nil))
			g.do(t, g.request(t, http.MethodGet, "gone", nil))
			raw(t, g, "nonsense\r\n\r\n")
			g.Stop()
			entries := logged(t, g.Output())
			if len(entries) != len(want) {
				t.Fatalf("%d lines, want %v: %v", len(entries), want, entries)
			}
			for i, e := range entries {
				if got := fmt.Sprint(e["status"], " ", e["listener"]); got != want[i] {
					t.Errorf("line %d is %v, want status %v", i, e, want[i])
				}
				if e["status"] == 503.0 && (e["reason"] != "hold_timeout" || e["request"] != "request-of-gone" || e["path"] != "/a/../b//c") {
					t.Errorf("line is %v", e)
				}
			}
		})
	}
}

package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func TestScaleSaysTheFunctionWhole(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	out, err := g.run(t, "scale", "prod/echo/acme", "2")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "scale.txt", out)
	if out, err = g.run(t, "scale", "prod/echo/new", "9", "--max-instances", "8", "--metadata", "v3"); err != nil || !strings.Contains(out, "9 is outside the function's bounds of 0 to 8") {
		t.Errorf("printed %q, %v", out, err)
	}
	wanted := []*skipperpb.ScaleRequest{
		{Function: function("acme"), DesiredInstances: 2},
		{Function: &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "new", Metadata: "v3", Scale: &skipperpb.Scale{MaxInstances: 8}}, DesiredInstances: 9},
	}
	for i, want := range wanted {
		if !proto.Equal(want, g.scaled[i]) {
			t.Errorf("asked for %v, want %v", g.scaled[i], want)
		}
	}
	for _, args := range []string{"scale prod/echo/acme many", "scale prod/echo/acme -1", "scale echo 1", "scale prod/echo/acme 1 --max-instances 0", "scale prod/echo/acme 4294967296"} {
		if _, err := g.run(t, strings.Fields(args)...); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	if len(g.scaled) != 2 {
		t.Errorf("bad input scaled something: %v", g.scaled)
	}
}

func TestReleaseGivesBackWhatIsThere(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	if _, err := g.run(t, "release", "echo-1", "nothing"); err == nil || len(g.released) != 0 {
		t.Errorf("one of two is missing: released %v, error %v", g.released, err)
	}
	out, err := g.run(t, "release", "echo-1", "uid-2")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "release.txt", out)
	if len(g.released) != 2 || g.released[0].GetInstance().GetUid() != "uid-1" || g.released[1].GetInstance().GetName() != "echo-2" {
		t.Errorf("released %v", g.released)
	}
	g.fail = status.Error(codes.FailedPrecondition, "nothing was done")
	if _, err := g.run(t, "release", "echo-1"); err == nil {
		t.Error("a refusal is no error")
	}
}

func TestDrainAnnotatesThePod(t *testing.T) {
	t.Parallel()
	g := newStage(t, functionPod("echo-1", "acme", function("acme")), functionPod("echo-2", "zenith", function("zenith")))
	out, err := g.run(t, "drain", "echo-1")
	if err != nil || !strings.Contains(out, "draining") {
		t.Fatalf("printed %q, %v", out, err)
	}
	at := func(name string) string {
		p, err := g.kube.CoreV1().Pods("prod").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Annotations[pool.AnnotationDrainingAt]
	}
	if got := at("echo-1"); got != pool.FormatTime(clock) {
		t.Errorf("drains since %q", got)
	}
	if out, err = g.run(t, "drain", "--function", "prod/echo/acme"); err != nil || !strings.Contains(out, "draining already") {
		t.Errorf("printed %q, %v", out, err)
	}
	for _, args := range []string{"drain", "drain echo-2 --function prod/echo/zenith", "drain echo-2 nothing", "drain --function x"} {
		if _, err := g.run(t, strings.Fields(args)...); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	if at("echo-2") != "" {
		t.Error("bad input drained a pod")
	}
}

func TestDrainWaitsUntilThePodIsGone(t *testing.T) {
	t.Parallel()
	g := newStage(t, functionPod("echo-1", "acme", function("acme")))
	g.kube.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { // another of the name, by then
		return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "echo-1", UID: "next"}}, nil
	})
	if out, err := g.run(t, "drain", "echo-1", "--wait"); err != nil || !strings.Contains(out, "gone") {
		t.Errorf("printed %q, %v", out, err)
	}
}

// gateway answers like one, and has an instance assigned as a cold request does.
func gateway(t *testing.T, g *stage) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := fn.Parse([]byte(r.Header.Get("X-Skipper-Function")))
		if err != nil || f.GetTenant() == "refused" {
			w.Header().Set("x-skipper-reason", "header_invalid")
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if f.GetTenant() == "new" {
			p := functionPod("echo-new", "new", f)
			if _, err := g.kube.CoreV1().Pods("prod").Create(r.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.String()+" "+f.GetMetadata()+" "+r.Header.Get("X-Mine")+" "+string(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	envoy := controllerPod("envoy-1", "10.0.0.3")
	envoy.Labels["app.kubernetes.io/name"] = "skipper-envoy"
	g := newStage(t, envoy, functionPod("echo-1", "acme", function("acme")))
	server := gateway(t, g)
	g.addrs["envoy-1"] = server.Listener.Addr().String()
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args  string
		input string
		want  []string // parts of what is printed
	}{
		{"invoke prod/echo/acme /hello?a=b", "", []string{"GET /hello?a=b v2 ", "Status:       200 OK", "Start:        warm", "Instance:     echo-1", "First byte:", "Total:"}},
		{"invoke prod/echo/new / --metadata v9", "", []string{"GET / v9", "Start:        cold", "Instance:     echo-new"}},
		{"invoke prod/echo/acme -d text -H X-Mine:mine", "", []string{"POST / v2 mine text"}},
		{"invoke prod/echo/acme -X put -d @" + file, "", []string{"PUT / v2  from a file"}},
		{"invoke prod/echo/acme -d @-", "from the input", []string{"POST / v2  from the input"}},
		{"invoke prod/echo/acme -o json", "", []string{`"status": 200`, `"body": "GET / v2  "`, `"kind": "warm"`, `"total_seconds": `}},
		{"invoke prod/echo/acme --gateway " + server.URL + "/base sub", "", []string{"GET /base/sub v2"}},
	} {
		out, err := g.runWith(t, row.input, strings.Fields(row.args)...)
		if err != nil {
			t.Errorf("%s: %v", row.args, err)
		}
		for _, part := range row.want {
			if !strings.Contains(out, part) {
				t.Errorf("%s: %q is not in %q", row.args, part, out)
			}
		}
	}
	out, err := g.run(t, "invoke", "prod/echo/refused")
	if !errors.Is(err, errNotTheFunction) || !strings.Contains(out, "header_invalid") {
		t.Errorf("printed %q, %v", out, err)
	}
	for _, args := range []string{
		"invoke prod/echo", "invoke prod/echo/acme -H x", "invoke prod/echo/acme -H X-Skipper-Function:{}", "invoke prod/echo/acme -d @/does/not/exist",
		"invoke prod/echo/acme --gateway http://", "invoke prod/echo/acme /%zz", "invoke prod/echo/acme --min-instances 9", "invoke prod/echo/acme --gateway-selector a=b",
	} {
		if _, err := g.run(t, strings.Fields(args)...); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func FuzzParseHeaders(f *testing.F) {
	for _, s := range []string{"A: b", "A:b:c", ":", "A", "X-Skipper-Function: {}", "a\r\nb: c", "\x00: x", "a : b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		h, err := parseHeaders([]string{line})
		if err != nil {
			return
		}
		var wire strings.Builder
		if err := h.Write(&wire); err != nil || strings.Count(wire.String(), "\n") != 1 || h.Get("X-Skipper-Function") != "" {
			t.Errorf("%q is sent as %q, %v", line, wire.String(), err)
		}
	})
}

func FuzzJoin(f *testing.F) {
	for _, s := range []string{"/", "/a?b=c#d", "//x/y", "http://other/", "../..", "%2f", "\\", "?x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := join("http://gateway:80", path)
		if err == nil && !strings.HasPrefix(got, "http://gateway:80/") && got != "http://gateway:80" && !strings.HasPrefix(got, "http://gateway:80?") {
			t.Errorf("%q leads to %q", path, got)
		}
	})
}

func TestConfigurationInForceIsRepeated(t *testing.T) {
	t.Parallel()
	named := &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "acme"}
	whole := function("acme")
	whole.Metadata, whole.Scale = "json", &skipperpb.Scale{MaxInstances: 7}
	c := &configuration{metadata: "flag", scale: skipperpb.Scale{MaxInstances: 2, MinInstances: 2}}
	for _, row := range []struct {
		name           string
		named, inForce *skipperpb.Function
		flags          string
		metadata       string
		min, max       uint32
	}{
		{"nothing known", named, nil, "", "", 0, 1},
		{"in force", named, function("acme"), "", "v2", 1, 4},
		{"JSON beats it", whole, function("acme"), "", "json", 0, 7},
		{"flags beat both", whole, function("acme"), "metadata max-instances min-instances", "flag", 2, 2},
		{"one flag", named, function("acme"), "max-instances", "v2", 1, 2},
	} {
		got, err := c.complete(row.named, row.inForce, func(flag string) bool { return strings.Contains(" "+row.flags+" ", " "+flag+" ") })
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if d := cmp.Diff([]any{row.metadata, row.min, row.max}, []any{got.GetMetadata(), got.GetScale().GetMinInstances(), got.GetScale().GetMaxInstances()}); d != "" {
			t.Errorf("%s: %s", row.name, d)
		}
	}
}

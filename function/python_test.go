package function_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"skipper/function"
	"skipper/function/token"
)

// pythonVariable names another interpreter than python3, such as one of an environment that has pyseto.
const pythonVariable = "SKIPPER_TEST_PYTHON"

// The example for authors in Python keeps the rules that the package keeps in Go.
func TestPythonExample(t *testing.T) {
	state := filepath.Join(t.TempDir(), "assignment.json")
	pod := startPython(t, "SKIPPER_INSECURE_ACCEPT_ANY_TOKEN=1", "SKIPPER_STATE_FILE="+state)
	pod.want(t, "a probe", http.StatusOK, http.MethodGet, "/healthz", nil)
	pod.wantRefusal(t, "a request before the assignment", podUID)
	pod.want(t, "an assignment", http.StatusOK, http.MethodPost, function.DefaultAssignPath, pythonAssignment(t, "a", podUID))
	pod.wantAssigned(t)
	pod.stop(t)

	// The container is started anew in the same pod.
	pod = startPython(t, "SKIPPER_INSECURE_ACCEPT_ANY_TOKEN=1", "SKIPPER_STATE_FILE="+state)
	pod.wantAssigned(t)
	pod.stop(t)
}

// Tokens are checked where the library is there, and refused where it is not or where there is no key.
func TestPythonExampleChecksTheToken(t *testing.T) {
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "public.pem")
	writeKeys(t, keyFile, public(key(3)), public(key(1)))
	pod := startPython(t, "SKIPPER_PUBLIC_KEY_FILE="+keyFile, "SKIPPER_STATE_FILE="+filepath.Join(dir, "assignment.json"))
	defer pod.stop(t)
	forged := pythonAssignment(t, "a", podUID)
	forged.Set(function.HeaderToken, forged.Get(function.HeaderToken)[:20]+"AAAA"+forged.Get(function.HeaderToken)[24:])
	pod.want(t, "a forged token", http.StatusUnauthorized, http.MethodPost, function.DefaultAssignPath, forged)
	if err := exec.CommandContext(t.Context(), python(t), "-c", "import pyseto").Run(); err != nil {
		pod.want(t, "any token, without pyseto", http.StatusUnauthorized, http.MethodPost, function.DefaultAssignPath, pythonAssignment(t, "a", podUID))
		return
	}
	pod.want(t, "a good token", http.StatusOK, http.MethodPost, function.DefaultAssignPath, pythonAssignment(t, "a", podUID))
	pod.wantAssigned(t)
}

// pythonPod is the running example.
type pythonPod struct {
	cmd *exec.Cmd
	url string
}

// python is the interpreter; without one the test is skipped.
func python(t *testing.T) string {
	t.Helper()
	name := os.Getenv(pythonVariable)
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("the example in Python is not tested: there is no %s: %v", name, err)
	}
	return path
}

// startPython runs the example until stop, or until the test ends.
func startPython(t *testing.T, env ...string) *pythonPod {
	t.Helper()
	const example = "examples/python/function.py"
	if _, err := os.ReadFile(example); err != nil { // so that results are not kept when it changes
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t), "-B", example)
	cmd.Env = append(append(os.Environ(), "PORT=0", "STOP_DELAY=0", "POD_NAME="+podName, "POD_UID="+podUID), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	port := regexp.MustCompile(`\d+`).FindString(line)
	if err != nil || port == "" {
		t.Fatalf("the example said %q, %v", line, err)
	}
	return &pythonPod{cmd, "http://127.0.0.1:" + port}
}

// stop ends it as the kubelet does.
func (p *pythonPod) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the example after SIGTERM: %v", err)
	}
}

// wantAssigned: the pod belongs to tenant a, and nothing that anybody says makes it another's.
func (p *pythonPod) wantAssigned(t *testing.T) {
	t.Helper()
	const path = function.DefaultAssignPath
	p.want(t, "its own request", http.StatusOK, http.MethodGet, "/", http.Header{function.HeaderInstance: {podUID}})
	p.wantRefusal(t, "a request for another pod", "another-uid")
	p.wantRefusal(t, "a request for nobody")
	p.wantRefusal(t, "a request for two pods", podUID, "another-uid")
	if got := stream(t, false, p.url, "another-uid"); got.Status != http.StatusMisdirectedRequest || got.Misdirected != "1" {
		t.Errorf("a stream for another pod: %+v", got)
	}
	p.want(t, "the same assignment again", http.StatusOK, http.MethodPost, path, pythonAssignment(t, "a", podUID))
	p.want(t, "another tenant's assignment", http.StatusConflict, http.MethodPost, path, pythonAssignment(t, "b", podUID))
	p.want(t, "an assignment of another pod", http.StatusUnauthorized, http.MethodPost, path, pythonAssignment(t, "a", "another-uid"))
	mixed := pythonAssignment(t, "a", podUID)
	mixed.Set(function.HeaderFunction, strings.Replace(mixed.Get(function.HeaderFunction), "café", "cafe", 1))
	p.want(t, "a token of another function", http.StatusUnauthorized, http.MethodPost, path, mixed)
	p.want(t, "a token of another tenant", http.StatusUnauthorized, http.MethodPost, path, signedFor(t, "b", podUID, pythonFunction("a")))
	p.want(t, "no token", http.StatusUnauthorized, http.MethodPost, path, nil)
	p.want(t, "its own request afterwards", http.StatusOK, http.MethodGet, "/", http.Header{function.HeaderInstance: {podUID}})
}

func (p *pythonPod) wantRefusal(t *testing.T, what string, instances ...string) {
	t.Helper()
	got := p.want(t, what, http.StatusMisdirectedRequest, http.MethodGet, "/", http.Header{function.HeaderInstance: instances})
	if got.Get(function.HeaderMisdirected) != "1" {
		t.Errorf("%s: headers %v, want %s", what, got, function.HeaderMisdirected)
	}
}

// want sends a request and returns the headers of the answer.
func (p *pythonPod) want(t *testing.T, what string, status int, method, path string, header http.Header) http.Header {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		t.Errorf("%s: status %d, want %d", what, resp.StatusCode, status)
	}
	return resp.Header
}

// pythonAssignment is what the controller would post.
func pythonAssignment(t *testing.T, tenant, uid string) http.Header {
	t.Helper()
	return signedFor(t, tenant, uid, pythonFunction(tenant))
}

func pythonFunction(tenant string) string {
	return fmt.Sprintf(`{"namespace":"prod","deployment":"echo","tenant":%q,"metadata":"café","scale":{"max_instances":1}}`, tenant)
}

// signedFor is an assignment whose token is by the real clock, which the example has.
func signedFor(t *testing.T, tenant, uid, text string) http.Header {
	t.Helper()
	signed, err := token.Sign(key(1), token.NewClaims(time.Now(), tenant, podName, uid, text))
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{function.HeaderToken: {signed}, function.HeaderFunction: {text}}
}

package function_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"skipper/function"
	"skipper/function/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	podName = "echo-server-7d9f-abcde"
	podUID  = "0b9d3c1e-0000-4000-8000-000000000001"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func config() function.Config {
	cfg := function.NewConfig()
	cfg.PodName, cfg.PodUID = podName, podUID
	cfg.PublicKeys = []ed25519.PublicKey{public(key(2)), public(key(1))}
	cfg.Now = func() time.Time { return now }
	return cfg
}

func newPod(t testing.TB, cfg function.Config) *function.Pod {
	t.Helper()
	pod, err := function.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func claimsFor(tenant, text string) token.Claims {
	return token.NewClaims(now, tenant, podName, podUID, text)
}

func sign(t testing.TB, k ed25519.PrivateKey, c token.Claims) string {
	t.Helper()
	text, err := token.Sign(k, c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// functionFor is the JSON of a small function of a tenant.
func functionFor(tenant, metadata string) string {
	return fmt.Sprintf(`{"namespace":"prod","deployment":"echo-server","tenant":%q,"metadata":%q,"scale":{"max_instances":3}}`, tenant, metadata)
}

// assignRequest is a valid assignment of a function to the test's pod.
func assignRequest(t testing.TB, tenant, text string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, function.DefaultAssignPath, http.NoBody)
	r.Header.Set(function.HeaderToken, sign(t, key(1), claimsFor(tenant, text)))
	r.Header.Set(function.HeaderFunction, text)
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func assign(t testing.TB, pod *function.Pod, tenant, text string) int {
	t.Helper()
	return serve(pod.Handler(http.NotFoundHandler()), assignRequest(t, tenant, text)).Code
}

func TestAssignmentIsPublished(t *testing.T) {
	pod := newPod(t, config())
	if a, ok := pod.Assigned(); ok {
		t.Fatalf("fresh pod is assigned: %+v", a)
	}
	if code := assign(t, pod, "tenant-123", sampleJSON); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	got, ok := pod.Assigned()
	want := function.Assignment{Function: sampleFunction(), PodName: podName, PodUID: podUID}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("assigned %t (-want +got):\n%s", ok, diff)
	}
}

func TestAssignmentRefused(t *testing.T) {
	good := functionFor("a", "")
	goodToken := sign(t, key(1), claimsFor("a", good))
	otherPod, otherUID, late, early := claimsFor("a", good), claimsFor("a", good), claimsFor("a", good), claimsFor("a", good)
	otherPod.Pod, otherUID.UID = "other", "other"
	late.Expires, early.NotBefore = now.Add(-time.Minute), now.Add(61*time.Second)
	rows := []struct {
		name     string
		method   string
		token    []string
		function []string
		want     int
	}{
		{"get", "GET", []string{goodToken}, []string{good}, 405},
		{"put", "PUT", []string{goodToken}, []string{good}, 405},
		{"no token", "POST", nil, []string{good}, 400},
		{"empty token", "POST", []string{""}, []string{good}, 400},
		{"two tokens", "POST", []string{goodToken, goodToken}, []string{good}, 400},
		{"token too long", "POST", []string{goodToken + strings.Repeat("A", token.MaxLength)}, []string{good}, 400},
		{"no function", "POST", []string{goodToken}, nil, 400},
		{"two functions", "POST", []string{goodToken}, []string{good, good}, 400},
		{"function too long", "POST", []string{goodToken}, []string{strings.Repeat("x", function.MaxFunctionBytes+1)}, 400},
		{"signed, but no JSON", "POST", []string{sign(t, key(1), claimsFor("a", "hello"))}, []string{"hello"}, 400},
		{"signed, but no tenant", "POST", []string{sign(t, key(1), claimsFor("a", "{}"))}, []string{"{}"}, 400},
		{"no PASETO", "POST", []string{"hello"}, []string{good}, 401},
		{"unknown key", "POST", []string{sign(t, key(3), claimsFor("a", good))}, []string{good}, 401},
		{"another pod", "POST", []string{sign(t, key(1), otherPod)}, []string{good}, 401},
		{"another UID", "POST", []string{sign(t, key(1), otherUID)}, []string{good}, 401},
		{"expired", "POST", []string{sign(t, key(1), late)}, []string{good}, 401},
		{"not yet valid", "POST", []string{sign(t, key(1), early)}, []string{good}, 401},
		{"another function's token", "POST", []string{goodToken}, []string{functionFor("a", "x")}, 401},
		{"function with a space more", "POST", []string{goodToken}, []string{good + " "}, 401},
		{"subject of another tenant", "POST", []string{sign(t, key(1), claimsFor("b", good))}, []string{good}, 401},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			pod := newPod(t, config())
			r := httptest.NewRequestWithContext(t.Context(), row.method, function.DefaultAssignPath, http.NoBody)
			r.Header[function.HeaderToken], r.Header[function.HeaderFunction] = row.token, row.function
			w := serve(pod.Handler(http.NotFoundHandler()), r)
			if w.Code != row.want {
				t.Errorf("status %d, want %d: %s", w.Code, row.want, w.Body)
			}
			if a, ok := pod.Assigned(); ok {
				t.Errorf("pod is assigned all the same: %+v", a)
			}
		})
	}
}

func TestSecondAssignment(t *testing.T) {
	first := functionFor("a", "v1")
	rows := []struct {
		name, tenant, text string
		want               int
	}{
		{"the same", "a", first, 200},
		{"the same, written another way", "a", strings.Replace(first, ":", ": ", 1), 200},
		{"only scale differs", "a", strings.Replace(first, "3}", "9}", 1), 200},
		{"another tenant", "b", functionFor("b", "v1"), 409},
		{"other metadata", "a", functionFor("a", "v2"), 409},
		{"another deployment", "a", strings.Replace(first, "echo-server", "other", 1), 409},
		{"another namespace", "a", strings.Replace(first, "prod", "test", 1), 409},
		{"oneshot", "a", strings.Replace(first, "{", `{"oneshot":true,`, 1), 409},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			pod := newPod(t, config())
			if code := assign(t, pod, "a", first); code != http.StatusOK {
				t.Fatalf("first assignment: status %d", code)
			}
			before, _ := pod.Assigned()
			if code := assign(t, pod, row.tenant, row.text); code != row.want {
				t.Errorf("status %d, want %d", code, row.want)
			}
			after, _ := pod.Assigned()
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("assignment changed (-before +after):\n%s", diff)
			}
		})
	}
}

// unreadable fails the test when the endpoint touches a request's body.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("body was read")
	return 0, io.EOF
}

func TestAssignmentBodyIsNotRead(t *testing.T) {
	pod := newPod(t, config())
	r := assignRequest(t, "a", functionFor("a", ""))
	r.Body = io.NopCloser(unreadable{t})
	if w := serve(pod.Handler(http.NotFoundHandler()), r); w.Code != http.StatusOK {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestPodWithoutUIDLearnsItFromTheToken(t *testing.T) {
	cfg := config()
	cfg.PodUID = ""
	pod := newPod(t, cfg)
	if code := assign(t, pod, "a", functionFor("a", "")); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	if a, _ := pod.Assigned(); a.PodUID != podUID {
		t.Errorf("UID %q, want %q", a.PodUID, podUID)
	}
	text := functionFor("a", "")
	again := claimsFor("a", text)
	again.UID = "another"
	r := assignRequest(t, "a", text)
	r.Header.Set(function.HeaderToken, sign(t, key(1), again))
	if w := serve(pod.Handler(http.NotFoundHandler()), r); w.Code != http.StatusConflict {
		t.Errorf("same function under another UID: status %d, want 409", w.Code)
	}
}

func TestWithoutKeysEveryAssignmentIsRefused(t *testing.T) {
	cfg := config()
	cfg.PublicKeys = nil
	if code := assign(t, newPod(t, cfg), "a", functionFor("a", "")); code != http.StatusUnauthorized {
		t.Errorf("status %d, want 401", code)
	}
	cfg.AcceptAnyToken = true
	if code := assign(t, newPod(t, cfg), "a", functionFor("a", "")); code != http.StatusOK {
		t.Errorf("AcceptAnyToken: status %d, want 200", code)
	}
}

func writeKeys(t *testing.T, path string, keys ...ed25519.PublicKey) {
	t.Helper()
	var file bytes.Buffer
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k)
		if err != nil {
			t.Fatal(err)
		}
		file.Write(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeyFilesAreReadAtEachAssignment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pem")
	writeKeys(t, path, public(key(3)))
	cfg := config()
	cfg.PublicKeys, cfg.PublicKeyFiles = nil, []string{path}
	pod := newPod(t, cfg)
	if code := assign(t, pod, "a", functionFor("a", "")); code != http.StatusUnauthorized {
		t.Fatalf("before the rotation: status %d, want 401", code)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if code := assign(t, pod, "a", functionFor("a", "")); code != http.StatusInternalServerError {
		t.Fatalf("file gone: status %d, want 500", code)
	}
	writeKeys(t, path, public(key(3)), public(key(1)))
	if code := assign(t, pod, "a", functionFor("a", "")); code != http.StatusOK {
		t.Errorf("after the rotation: status %d, want 200", code)
	}
}

func TestOnAssignErrorLeavesThePodFree(t *testing.T) {
	answers := []error{errors.New("model file missing"), nil}
	var seen []string
	cfg := config()
	cfg.OnAssign = func(_ context.Context, a function.Assignment) error {
		seen = append(seen, a.Tenant()+" "+a.Metadata())
		err := answers[0]
		answers = answers[1:]
		return err
	}
	pod := newPod(t, cfg)
	w := serve(pod.Handler(http.NotFoundHandler()), assignRequest(t, "a", functionFor("a", "v1")))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "model file missing") {
		t.Errorf("status %d, body %q", w.Code, w.Body)
	}
	if a, ok := pod.Assigned(); ok {
		t.Errorf("pod is assigned: %+v", a)
	}
	for range 2 { // accepted, then repeated, which must not call again
		if code := assign(t, pod, "b", functionFor("b", "v2")); code != http.StatusOK {
			t.Errorf("next tenant: status %d", code)
		}
	}
	if diff := cmp.Diff([]string{"a v1", "b v2"}, seen); diff != "" {
		t.Errorf("callback saw (-want +got):\n%s", diff)
	}
}

func TestOnAssignPanicLeavesThePodFree(t *testing.T) {
	explode := true
	cfg := config()
	cfg.OnAssign = func(context.Context, function.Assignment) error {
		if explode {
			panic("author's mistake")
		}
		return nil
	}
	pod := newPod(t, cfg)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		assign(t, pod, "a", functionFor("a", ""))
	}()
	explode = false
	if code := assign(t, pod, "b", functionFor("b", "")); code != http.StatusOK {
		t.Errorf("after the panic: status %d", code)
	}
}

// While one assignment is on its way, the same one waits for its outcome and another is refused at once.
func TestAssignmentsMeetInsideOnAssign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls := 0
		cfg := config()
		cfg.OnAssign = func(context.Context, function.Assignment) error {
			calls++
			<-release
			return nil
		}
		pod := newPod(t, cfg)
		codes := make(chan int, 2)
		for range 2 {
			go func() { codes <- assign(t, pod, "a", functionFor("a", "")) }()
		}
		synctest.Wait()
		if code := assign(t, pod, "b", functionFor("b", "")); code != http.StatusConflict {
			t.Errorf("another tenant: status %d, want 409", code)
		}
		gone := assignRequest(t, "a", functionFor("a", ""))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w := serve(pod.Handler(http.NotFoundHandler()), gone.WithContext(ctx)); w.Code != http.StatusInternalServerError {
			t.Errorf("caller that gave up: status %d, want 500", w.Code)
		}
		close(release)
		if first, second := <-codes, <-codes; first != 200 || second != 200 || calls != 1 {
			t.Errorf("statuses %d and %d after %d calls, want 200, 200 after 1", first, second, calls)
		}
	})
}

// Property: of any number of tenants at once exactly one wins, and only its own repetitions are accepted.
func TestConcurrentTenantsExactlyOneWins(t *testing.T) {
	const rounds, tenants, each = 30, 8, 3
	for range rounds {
		pod := newPod(t, config())
		var mu sync.Mutex
		accepted := map[string]int{}
		var all sync.WaitGroup
		for i := range tenants * each {
			tenant := fmt.Sprintf("t%d", i%tenants)
			r := assignRequest(t, tenant, functionFor(tenant, ""))
			all.Go(func() {
				code := serve(pod.Handler(http.NotFoundHandler()), r).Code
				mu.Lock()
				defer mu.Unlock()
				switch code {
				case http.StatusOK:
					accepted[tenant]++
				case http.StatusConflict:
				default:
					t.Errorf("tenant %s: status %d", tenant, code)
				}
			})
		}
		all.Wait()
		a, ok := pod.Assigned()
		if want := map[string]int{a.Tenant(): each}; !ok || !cmp.Equal(want, accepted) {
			t.Fatalf("pod belongs to %q (%t), accepted %v", a.Tenant(), ok, accepted)
		}
	}
}

func TestTokensAreNeverLogged(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	cfg := config()
	cfg.Logger = zap.New(core)
	pod := newPod(t, cfg)
	secret := sign(t, key(3), claimsFor("a", functionFor("a", "")))
	bad := assignRequest(t, "a", functionFor("a", ""))
	bad.Header.Set(function.HeaderToken, secret)
	serve(pod.Handler(http.NotFoundHandler()), bad)
	assign(t, pod, "a", functionFor("a", ""))
	var messages []string
	for _, entry := range logs.All() {
		messages = append(messages, entry.Message)
		if line := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(line, "v2.public") {
			t.Errorf("log holds a token: %s", line)
		}
	}
	if diff := cmp.Diff([]string{"assignment refused", "assignment accepted"}, messages); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestNewReportsAllProblems(t *testing.T) {
	cfg := function.Config{AssignPath: "x", HealthPath: "x", PublicKeyFiles: []string{"testdata/none.pem"}}
	_, err := function.New(cfg)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"POD_NAME", "slash", "both", "testdata/none.pem"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not speak of %q: %v", want, err)
		}
	}
}

func TestFromEnv(t *testing.T) {
	t.Setenv("POD_NAME", podName)
	t.Setenv("POD_UID", podUID)
	t.Setenv("SKIPPER_PUBLIC_KEY_FILE", "/keys/a.pem, /keys/b.pem,")
	got, err := function.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	want := function.NewConfig()
	want.PodName, want.PodUID, want.PublicKeyFiles = podName, podUID, []string{"/keys/a.pem", "/keys/b.pem"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	t.Setenv("POD_NAME", "")
	host, err := os.Hostname()
	if err != nil {
		t.Skipf("no host name: %v", err)
	}
	if got, err = function.FromEnv(); err != nil || got.PodName != host {
		t.Errorf("pod name %q, error %v, want the host name %q", got.PodName, err, host)
	}
}

// Whatever arrives, the status is one of the documented, and only 200 changes the pod.
func FuzzAssign(f *testing.F) {
	text := functionFor("a", "v1")
	good := sign(f, key(1), claimsFor("a", text))
	f.Add("POST", good, text)
	f.Add("GET", good, text)
	f.Add("POST", "", "")
	f.Add("POST", "v2.public.AAAA", "{")
	f.Add("POST", good, text+" ")
	f.Add("POST", good[:len(good)-1], text)
	f.Fuzz(func(t *testing.T, method, signed, text string) {
		pod := newPod(t, config())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, function.DefaultAssignPath, http.NoBody)
		r.Method = method
		r.Header[function.HeaderToken], r.Header[function.HeaderFunction] = []string{signed}, []string{text}
		w := serve(pod.Handler(http.NotFoundHandler()), r)
		switch w.Code {
		case 200, 400, 401, 405:
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		a, ok := pod.Assigned()
		if ok != (w.Code == http.StatusOK) || (ok && a.Tenant() != "a") {
			t.Errorf("status %d, assigned %t to %q", w.Code, ok, a.Tenant())
		}
	})
}

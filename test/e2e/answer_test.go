//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
)

// functionHeader names the function that a request is for.
const functionHeader = "X-Skipper-Function"

// shownBody is how much of a body a failure shows.
const shownBody = 600

// answer is all that a client saw of one request.
type answer struct {
	status          int
	header, trailer http.Header
	body            []byte
	// err is set when there was no whole answer.
	err error
}

func (a answer) reason() reason.Reason { return reason.Reason(a.header.Get(reason.Header)) }

func (a answer) String() string {
	body := a.body
	if len(body) > shownBody {
		body = append(body[:shownBody:shownBody], "..."...)
	}
	return fmt.Sprintf("status %d, %s %q, body %q, error %v", a.status, reason.Header, a.reason(), body, a.err)
}

// echoed is what the example function tells about a request.
type echoed struct {
	Method    string      `json:"method"`
	Path      string      `json:"path"`
	Host      string      `json:"host"`
	Proto     string      `json:"proto"`
	Headers   http.Header `json:"headers"`
	Tenant    string      `json:"tenant"`
	Metadata  string      `json:"metadata"`
	Oneshot   bool        `json:"oneshot"`
	PodName   string      `json:"pod_name"`
	PodUID    types.UID   `json:"pod_uid"`
	BodyBytes int64       `json:"body_bytes"`
	SHA256    string      `json:"body_sha256"`
	Body      string      `json:"body"`
	Trailers  http.Header `json:"trailers"`
}

// echoOf reads the answer of the example function.
func echoOf(a answer) (echoed, error) {
	var e echoed
	if a.err != nil || a.status != http.StatusOK {
		return e, fmt.Errorf("want status 200: %s", a)
	}
	if a.reason() != "" {
		return e, fmt.Errorf("a function's answer carries a reason: %s", a)
	}
	if err := json.Unmarshal(a.body, &e); err != nil {
		return e, fmt.Errorf("read echo: %w: %s", err, a)
	}
	return e, nil
}

// mustEcho is echoOf for the test's own goroutine.
func mustEcho(t *testing.T, a answer) echoed {
	t.Helper()
	e, err := echoOf(a)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// request makes a request for a function; nil is none. The path and its query must be valid.
func (w *world) request(ctx context.Context, method string, f *skipperpb.Function, path string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, w.gateway+path, body)
	if err != nil {
		panic(err) // the tests' own texts
	}
	if f != nil {
		r.Header.Set(functionHeader, string(fn.Marshal(f)))
	}
	return r
}

// send sends a request and reads the whole answer.
func (w *world) send(r *http.Request) answer { return sendWith(w.http, r) }

func sendWith(c *http.Client, r *http.Request) answer {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	resp, err := c.Do(r.WithContext(ctx))
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, trailer: resp.Trailer, body: body, err: err}
}

// get asks a function for a path.
func (w *world) get(ctx context.Context, f *skipperpb.Function, path string) answer {
	return w.send(w.request(ctx, http.MethodGet, f, path, nil))
}

// atOnce calls f n times in parallel; f(i) gives answer i.
func atOnce(n int, f func(i int) answer) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = f(i) })
	}
	wg.Wait()
	return answers
}

// podsOf tells which pod gave each answer; an answer that is none fails the test.
func podsOf(t *testing.T, answers []answer) []types.UID {
	t.Helper()
	uids := make([]types.UID, 0, len(answers))
	for i, a := range answers {
		e, err := echoOf(a)
		if err != nil {
			t.Errorf("request %d of %d: %v", i+1, len(answers), err)
			continue
		}
		uids = append(uids, e.PodUID)
	}
	if t.Failed() {
		t.FailNow()
	}
	return uids
}

// distinct counts different pods.
func distinct(uids []types.UID) int {
	seen := map[types.UID]bool{}
	for _, u := range uids {
		seen[u] = true
	}
	return len(seen)
}

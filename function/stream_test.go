package function_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/function"
)

// stream posts a body that has begun and never ends, and returns the answer, which must come all the same.
func stream(t *testing.T, h2c bool, url string, instances ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body, begun := io.Pipe()
	defer begun.Close()
	go func() { _, _ = begun.Write([]byte("the first part")) }() // fails when the request has ended
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if len(instances) > 0 {
		r.Header[function.HeaderInstance] = instances
	}
	resp, err := client(t, h2c).Do(r)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("answer cut: %v", err)
	}
	return answer{resp.StatusCode, resp.Header.Get(function.HeaderMisdirected), string(text)}
}

// A client that waits for an answer before it sends more is not kept waiting.
func TestRefusalsDoNotWaitForTheBody(t *testing.T) {
	pod := newPod(t, config())
	assign(t, pod, "a", functionFor("a", ""))
	s := start(t, patient(), pod.Handler(author()))
	misdirected := answer{421, "1", "misdirected: the request is for another instance\n"}
	for name, h2c := range map[string]bool{"http1": false, "h2c": true} {
		t.Run(name, func(t *testing.T) {
			for range 3 { // the connection, or the next one, is good for more
				if diff := cmp.Diff(misdirected, stream(t, h2c, "http://"+s.addr+"/", "other")); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			}
			got := stream(t, h2c, "http://"+s.addr+function.DefaultAssignPath)
			if got.Status != http.StatusBadRequest {
				t.Errorf("an assignment without headers: %+v", got)
			}
		})
	}
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A refusal ends the connection only where a body is in the way.
func TestRefusalKeepsTheConnection(t *testing.T) {
	s := start(t, patient(), newPod(t, config()).Handler(author()))
	for name, want := range map[string]struct {
		body   io.Reader
		closed bool
	}{"no body": {http.NoBody, false}, "body": {io.LimitReader(zeros{}, 10), true}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr, want.body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client(t, false).Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMisdirectedRequest || resp.Close != want.closed {
			t.Errorf("%s: status %d, connection closed: %v, want %v", name, resp.StatusCode, resp.Close, want.closed)
		}
	}
}

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

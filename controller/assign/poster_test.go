package assign

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

func testFunction() *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t1", Metadata: "a\x7f\n\"ü", Scale: &skipperpb.Scale{MaxInstances: 1}}
}

// podAt serves h in the protocol until the test ends and returns it as a pod.
func podAt(t *testing.T, p xds.Protocol, h http.HandlerFunc) pool.Pod {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(p == xds.HTTP1)
	s.Config.Protocols.SetUnencryptedHTTP2(p == xds.H2C)
	s.Start()
	t.Cleanup(s.Close)
	return podOn(t, s.Listener.Addr(), p)
}

func podOn(t *testing.T, addr net.Addr, p xds.Protocol) pool.Pod {
	t.Helper()
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return pool.Pod{Namespace: "prod", Name: "echo-1", UID: "u1", IP: ap.Addr().String(), Port: ap.Port(), Protocol: p}
}

func newPoster(t *testing.T, log *zap.Logger) *Poster {
	t.Helper()
	m, err := NewMinter(newKey())
	if err != nil {
		t.Fatal(err)
	}
	return NewPoster(PosterConfig{Path: "/__skipper/assign", Timeout: time.Minute, Minter: m, Log: log})
}

func TestAssignSpeaksThePodsProtocol(t *testing.T) {
	for p, major := range map[xds.Protocol]int{xds.HTTP1: 1, xds.H2C: 2} {
		t.Run(string(p), func(t *testing.T) {
			var got *http.Request
			var body []byte
			pod := podAt(t, p, func(_ http.ResponseWriter, r *http.Request) {
				got = r
				body, _ = io.ReadAll(r.Body)
			})
			if err := newPoster(t, zap.NewNop()).Assign(t.Context(), pod, testFunction()); err != nil {
				t.Fatal(err)
			}
			if got.Method != http.MethodPost || got.URL.Path != "/__skipper/assign" || got.ProtoMajor != major || len(body) != 0 {
				t.Errorf("%s %s %s with %d bytes", got.Method, got.URL, got.Proto, len(body))
			}
			f, err := fn.Parse([]byte(got.Header.Get(HeaderFunction)))
			if err != nil || f.GetMetadata() != testFunction().GetMetadata() {
				t.Errorf("function header %q: %v", got.Header.Get(HeaderFunction), err)
			}
			if !strings.HasPrefix(got.Header.Get(HeaderToken), "v2.public.") {
				t.Errorf("token header %.20q", got.Header.Get(HeaderToken))
			}
		})
	}
}

func TestAssignRefusals(t *testing.T) {
	tests := []struct {
		name   string
		answer http.HandlerFunc
		status int
		want   string
	}{
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\n\x1b[31m  thanks", 500) }, 500, "status 500: no ?[31m thanks"},
		{"204 is not 200", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, "status 204"},
		{"redirect is not followed", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, 307, "status 307"},
		{"long", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, strings.Repeat("ü", 1<<20))
		}, 400, strings.Repeat("ü", maxQuoted) + "..."},
		{"hung up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, "no usable answer"},
	}
	for _, tt := range tests {
		for _, p := range []xds.Protocol{xds.HTTP1, xds.H2C} {
			t.Run(tt.name+" "+string(p), func(t *testing.T) {
				core, logs := observer.New(zapcore.DebugLevel)
				err := newPoster(t, zap.New(core)).Assign(t.Context(), podAt(t, p, tt.answer), testFunction())
				var r *Refusal
				if !errors.As(err, &r) || r.Status != tt.status || !strings.Contains(r.Reason, tt.want) || len(r.Reason) > 4*maxQuoted {
					t.Errorf("error %v", err)
				}
				for _, e := range logs.All() {
					for _, f := range e.Context {
						if strings.Contains(f.String, "v2.public.") {
							t.Error("a token was logged")
						}
					}
				}
			})
		}
	}
}

func TestAssignWithoutAnswer(t *testing.T) {
	quit := make(chan struct{})
	slow := podAt(t, xds.HTTP1, func(http.ResponseWriter, *http.Request) { <-quit })
	t.Cleanup(func() { close(quit) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := podOn(t, l.Addr(), xds.HTTP1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	expect := func(ctx context.Context, pod pool.Pod, want string, is error) {
		t.Helper()
		err := newPoster(t, zap.NewNop()).Assign(ctx, pod, testFunction())
		if err == nil || !strings.Contains(err.Error(), want) || is != nil && !errors.Is(err, is) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancelLate()
	expect(left, slow, "the caller left", context.Canceled)
	expect(late, slow, "no answer", context.DeadlineExceeded)
	expect(t.Context(), closed, "no connection", nil)
	expect(t.Context(), pool.Pod{Name: "no-address"}, "no address", nil)
}

func FuzzSanitize(f *testing.F) {
	f.Add("a\n\xff\x00b")
	f.Fuzz(func(t *testing.T, s string) {
		got := sanitize(s)
		if strings.ContainsAny(got, "\n\r\x1b\x00") || len([]rune(got)) > maxQuoted+3 {
			t.Errorf("sanitize(%q) is %q", s, got)
		}
	})
}

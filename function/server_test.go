package function_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"skipper/function"
)

// server runs a Server on loopback until its stop is called, which returns what Serve returned.
type server struct {
	addr string
	end  context.CancelFunc
	done chan error
}

func (s *server) stop() error {
	s.end()
	return <-s.done
}

func start(t *testing.T, cfg function.Server, h http.Handler) *server {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &server{addr: ln.Addr().String(), end: cancel, done: make(chan error, 1)}
	go func() { s.done <- cfg.Serve(ctx, ln, h); close(s.done) }()
	t.Cleanup(func() { cancel(); <-s.done })
	return s
}

// client speaks HTTP/1.1, or HTTP/2 without TLS.
func client(t *testing.T, h2c bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2c)
	protocols.SetUnencryptedHTTP2(h2c)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(ctx context.Context, c *http.Client, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Proto + " " + string(data), err
}

// patient has time for any test, and no delay.
func patient() function.Server { return function.Server{Grace: time.Minute, IdleTimeout: time.Minute} }

func TestServeSpeaksBothProtocols(t *testing.T) {
	s := start(t, patient(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	for proto, h2c := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		_, body, err := get(t.Context(), client(t, h2c), "http://"+s.addr)
		if want := proto + " " + proto; err != nil || body != want {
			t.Errorf("got %q, %v, want %q", body, err, want)
		}
	}
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// stopStory orders a server to stop while one request is running; others that come meanwhile are still served, and
// the first gets its full answer.
func stopStory(t *testing.T, h2c bool) {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		fmt.Fprint(w, "whole answer")
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "short") })
	s := start(t, patient(), mux)
	long := make(chan string, 1)
	go func() {
		status, body, err := get(t.Context(), client(t, h2c), "http://"+s.addr+"/long")
		long <- fmt.Sprint(status, " ", body, " ", err)
	}()
	<-entered
	s.end()
	if status, body, err := get(t.Context(), client(t, h2c), "http://"+s.addr+"/short"); err != nil || status != 200 {
		t.Errorf("new request after the order to stop: %d %q %v", status, body, err)
	}
	close(release)
	if got := <-long; !strings.Contains(got, "whole answer <nil>") {
		t.Errorf("long request: %s", got)
	}
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, _, err := get(t.Context(), client(t, h2c), "http://"+s.addr+"/short"); err == nil {
		t.Error("a stopped server still answers")
	}
}

func TestStopServesOnUntilIdle(t *testing.T) {
	t.Run("http1", func(t *testing.T) { stopStory(t, false) })
	t.Run("h2c", func(t *testing.T) { stopStory(t, true) })
}

// From the order to stop on, answers ask the client to use another connection; before it they keep it.
func TestStopAsksClientsToLeave(t *testing.T) {
	hold := make(chan struct{})
	entered := make(chan struct{}, 1)
	s := start(t, patient(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			entered <- struct{}{}
			<-hold
		}
	}))
	held := make(chan error, 1)
	go func() { _, _, err := get(t.Context(), client(t, false), "http://"+s.addr+"/hold"); held <- err }()
	<-entered
	c := client(t, false)
	if first, second := reused(t, c, s.addr), reused(t, c, s.addr); first || !second {
		t.Errorf("before the stop: connection reused %t, %t, want false, true", first, second)
	}
	s.end()
	// The order has been heard once an answer closes its connection; each try waits for a whole round trip.
	for reused(t, c, s.addr) {
	}
	close(hold)
	if err := <-held; err != nil {
		t.Error(err)
	}
}

func reused(t *testing.T, c *http.Client, addr string) bool {
	t.Helper()
	var was bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { was = info.Reused },
	})
	if _, _, err := get(ctx, c, "http://"+addr+"/"); err != nil {
		t.Fatal(err)
	}
	return was
}

func TestStopCutsWhatOutlivesTheGrace(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	cfg := patient()
	cfg.Grace = time.Millisecond
	s := start(t, cfg, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(ended)
	}))
	failed := make(chan error, 1)
	go func() { _, _, err := get(t.Context(), client(t, false), "http://"+s.addr); failed <- err }()
	<-entered
	if err := s.stop(); err == nil || !strings.Contains(err.Error(), "1 requests cut") {
		t.Errorf("stop: %v, want one request cut", err)
	}
	<-ended
	if err := <-failed; err == nil {
		t.Error("the client did not notice")
	}
}

// net/http forgets a connection that is upgraded; the server must wait for it all the same.
func TestStopWaitsForUpgradedConnections(t *testing.T) {
	s := start(t, patient(), http.HandlerFunc(upgraded))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	exchange := func(line string) {
		t.Helper()
		fmt.Fprintln(conn, line)
		if got, err := in.ReadString('\n'); err != nil || got != line+"\n" {
			t.Errorf("sent %q, got %q, %v", line, got, err)
		}
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	exchange("hello")
	s.end()
	exchange("still there")
	fmt.Fprintln(conn, "bye")
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// upgraded takes over the connection and repeats lines until one says bye.
func upgraded(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		line, err := rw.ReadString('\n')
		if err != nil || line == "bye\n" {
			return
		}
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	}
}

func TestServeReportsALostListener(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := patient().Serve(t.Context(), ln, http.NotFoundHandler()); err == nil {
		t.Error("no error")
	}
	if err := (function.Server{Listen: "nonsense"}).ListenAndServe(t.Context(), http.NotFoundHandler()); err == nil {
		t.Error("no error for a nonsensical address")
	}
}

func TestServe(t *testing.T) {
	cfg := config()
	cfg.Server = patient()
	cfg.Server.Listen = "127.0.0.1:0"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := function.Serve(ctx, cfg, http.NotFoundHandler()); err != nil {
		t.Errorf("a context that ends is an orderly stop, got %v", err)
	}
	cfg.PodName = ""
	if err := function.Serve(t.Context(), cfg, http.NotFoundHandler()); err == nil {
		t.Error("no error for a bad configuration")
	}
}

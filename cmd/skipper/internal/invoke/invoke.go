package invoke

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"skipper/proto/reason"
)

// functionHeader says whom a request is for.
const functionHeader = "X-Skipper-Function"

// Request is what is sent.
type Request struct {
	// URL of the gateway with the path.
	URL    string
	Method string
	// Function is the X-Skipper-Function header: JSON, or a token around it.
	Function string
	Header   http.Header
	// Body; nil sends none.
	Body io.Reader
}

// Stages is how long each stage took, in seconds; 0 where there was none.
type Stages struct {
	DNS     float64 `json:"dns_seconds"`
	Connect float64 `json:"connect_seconds"`
	TLS     float64 `json:"tls_seconds"`
	// FirstByte is from the request's last byte to the answer's first one: the
	// gateway, a cold start if there was one, and the function.
	FirstByte float64 `json:"first_byte_seconds"`
	// Total is from the start to the answer's last byte.
	Total float64 `json:"total_seconds"`
}

// Result is what came back.
type Result struct {
	Status int    `json:"status"`
	Text   string `json:"status_text"`
	// Reason is why Skipper answered itself; empty: the function answered.
	Reason string      `json:"reason"`
	Header http.Header `json:"header"`
	Bytes  int64       `json:"body_bytes"`
	Stages Stages      `json:"stages"`
}

// Do sends the request and copies the answer's body to body. It follows no
// redirect and tries once, like the client whose trouble is looked into. An
// error means that no answer came, or not all of it.
func Do(ctx context.Context, r Request, body io.Writer) (Result, error) {
	watch := newStopwatch()
	req, err := r.build(httptrace.WithClientTrace(ctx, watch.trace()))
	if err != nil {
		return Result{}, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	watch.mark(&watch.start)
	answer, err := client.Do(req)
	if err != nil {
		return Result{}, fmt.Errorf("send request to the gateway: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	n, err := io.Copy(body, answer.Body)
	watch.mark(&watch.end)
	out := Result{
		Status: answer.StatusCode, Text: strings.TrimSpace(strings.TrimPrefix(answer.Status, fmt.Sprint(answer.StatusCode))),
		Reason: answer.Header.Get(reason.Header), Header: answer.Header, Bytes: n, Stages: watch.stages(),
	}
	if err != nil {
		return out, fmt.Errorf("read answer after %d bytes: %w", n, err)
	}
	return out, nil
}

func (r Request) build(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, r.Body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	if host := r.Header.Get("Host"); host != "" {
		req.Host = host
	}
	req.Header.Set(functionHeader, r.Function)
	return req, nil
}

// stopwatch notes when stages began and ended. The transport calls it from
// goroutines of its own.
type stopwatch struct {
	mu                                                               sync.Mutex
	start, dns, dnsEnd, dial, dialEnd, tls, tlsEnd, sent, first, end time.Time
}

func newStopwatch() *stopwatch { return &stopwatch{} }

func (w *stopwatch) mark(at *time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*at = time.Now()
}

func (w *stopwatch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { w.mark(&w.dns) },
		DNSDone:              func(httptrace.DNSDoneInfo) { w.mark(&w.dnsEnd) },
		ConnectStart:         func(_, _ string) { w.mark(&w.dial) },
		ConnectDone:          func(_, _ string, _ error) { w.mark(&w.dialEnd) },
		TLSHandshakeStart:    func() { w.mark(&w.tls) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { w.mark(&w.tlsEnd) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { w.mark(&w.sent) },
		GotFirstResponseByte: func() { w.mark(&w.first) },
	}
}

func (w *stopwatch) stages() Stages {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stages{
		DNS: between(w.dns, w.dnsEnd), Connect: between(w.dial, w.dialEnd), TLS: between(w.tls, w.tlsEnd),
		FirstByte: between(w.sent, w.first), Total: between(w.start, w.end),
	}
}

// between is 0 where a stage did not happen, or not in this order: a function
// may answer before it has the whole request.
func between(a, b time.Time) float64 {
	if a.IsZero() || b.Before(a) {
		return 0
	}
	return b.Sub(a).Seconds()
}

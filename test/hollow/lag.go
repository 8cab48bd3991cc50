package hollow

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// Hooks see what passes a LagProxy, and may hold it up; either may be nil.
type Hooks struct {
	// Before is called with each request before the API server gets it.
	Before func(*http.Request)
	// After is called with each answer's request before the caller gets it.
	After func(*http.Request)
}

// LagProxy is an API server whose watches are up to most late, each chunk by
// another time but none before an earlier one. Everything else passes at once.
// It speaks plain HTTP and acts with the rights of config, so it must listen on
// the loopback network only.
func LagProxy(config *rest.Config, most time.Duration, hooks Hooks) (http.Handler, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if hooks.Before != nil {
				hooks.Before(r.In)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if most > 0 && r.Request.URL.Query().Get("watch") != "" {
				r.Body = late(r.Request.Context(), r.Body, most)
			}
			if hooks.After != nil {
				hooks.After(r.Request)
			}
			return nil
		},
	}, nil
}

// chunk is what came of a body at once, and when it may be seen.
type chunk struct {
	data []byte
	err  error
	due  time.Time
}

// lateBody shows what it reads later than it came.
type lateBody struct {
	source  io.ReadCloser
	chunks  chan chunk
	current chunk
	over    <-chan struct{} // closed when nobody reads any more
}

func late(ctx context.Context, source io.ReadCloser, most time.Duration) io.ReadCloser {
	// What waits is what came within the delay; a burst beyond it waits in the
	// connection.
	l := &lateBody{source: source, chunks: make(chan chunk, 4096), over: ctx.Done()}
	go l.pump(most)
	return l
}

// pump ends with the source, which Close closes.
func (l *lateBody) pump(most time.Duration) {
	defer close(l.chunks)
	var due time.Time
	for {
		b := make([]byte, 32<<10)
		n, err := l.source.Read(b)
		at := time.Now().Add(time.Duration(rand.Int64N(int64(most))))
		if at.After(due) {
			due = at
		}
		select {
		case l.chunks <- chunk{b[:n], err, due}:
		case <-l.over:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read returns what is due.
func (l *lateBody) Read(b []byte) (int, error) {
	if len(l.current.data) == 0 {
		if l.current.err != nil {
			return 0, l.current.err
		}
		next, ok := <-l.chunks
		if !ok {
			return 0, io.EOF
		}
		timer := time.NewTimer(time.Until(next.due))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.over:
			return 0, context.Canceled
		}
		l.current = next
	}
	n := copy(b, l.current.data)
	l.current.data = l.current.data[n:]
	return n, nil
}

// Close implements io.Closer.
func (l *lateBody) Close() error { return l.source.Close() }

func localIP(r *http.Request) string {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return ""
	}
	return host
}

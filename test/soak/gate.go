package soak

import (
	"context"
	"net/http"
	"sync"
)

// Gate lets pass, or holds up, whoever waits at it. Safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open; guarded by mu
}

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// Shut holds up everybody from now on; a gate that is shut stays so.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

// Open lets pass who waits and whoever comes; an open gate stays so.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// IsOpen says whether one would pass now.
func (g *Gate) IsOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		return true
	default:
		return false
	}
}

// Wait returns when the gate is open, with the context's error when that ends
// first.
func (g *Gate) Wait(ctx context.Context) error {
	for !g.IsOpen() {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// FreezeWatches is an API server, or a proxy of one, whose watches say nothing
// while the gate is shut: connections stay, and everything else passes. What
// was held up comes when the gate opens.
func FreezeWatches(api http.Handler, g *Gate) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w = &gatedWriter{w, r.Context(), g}
		}
		api.ServeHTTP(w, r)
	})
}

// gatedWriter writes when the gate is open.
type gatedWriter struct {
	http.ResponseWriter
	ctx  context.Context //nolint:containedctx // that of the one request which the writer answers
	gate *Gate
}

func (w *gatedWriter) Write(b []byte) (int, error) {
	if err := w.gate.Wait(w.ctx); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (w *gatedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

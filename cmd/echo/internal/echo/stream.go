package echo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	defaultPieces = 10
	defaultEvery  = 100 * time.Millisecond
	defaultSlow   = time.Second
)

// serveChunks sends ?chunks=N lines, one each ?every=, without Content-Length.
func (s *Server) serveChunks(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s.servePieces(w, r, "chunks", func(i int64) string { return fmt.Sprintf("chunk %d\n", i) })
}

// serveEvents sends ?events=N server-sent events, one each ?every=, with ids that begin at 1.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	pod := s.assignment().PodName
	s.servePieces(w, r, "events", func(i int64) string {
		return fmt.Sprintf("id: %d\nevent: tick\ndata: {\"n\":%d,\"pod_name\":%q}\n\n", i, i, pod)
	})
}

// servePieces writes numbered pieces at a pace, each flushed; 0 pieces go on until the client leaves.
func (s *Server) servePieces(w http.ResponseWriter, r *http.Request, name string, piece func(int64) string) {
	n, err := count(r, name, defaultPieces)
	if err != nil {
		badRequest(w, err)
		return
	}
	every, err := duration(r, "every", defaultEvery)
	if err != nil {
		badRequest(w, err)
		return
	}
	rc := http.NewResponseController(w)
	for i := int64(1); n == 0 || i <= n; i++ {
		if _, err := io.WriteString(w, piece(i)); err != nil {
			return
		}
		if err := rc.Flush(); err != nil {
			return
		}
		if i != n && !pause(r.Context(), every) {
			return
		}
	}
}

// serveSlow answers after ?for=, or not at all when the client leaves first.
func (s *Server) serveSlow(w http.ResponseWriter, r *http.Request) {
	wait, err := duration(r, "for", defaultSlow)
	if err != nil {
		badRequest(w, err)
		return
	}
	// net/http notices a client that leaves only once the body is read.
	digest, err := digestOf(r.Body)
	if err != nil || !pause(r.Context(), wait) {
		s.log.Debug("client left a slow answer")
		return
	}
	writeJSON(w, s.describe(r, digest, ""))
}

// pause waits; false means that the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// count reads a number of at least 0 from the query.
func count(r *http.Request, name string, fallback int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("query parameter %s=%q is not a number of at least 0", name, text)
	}
	return n, nil
}

// duration reads a duration of at least 0, such as 100ms, from the query.
func duration(r *http.Request, name string, fallback time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("query parameter %s=%q is not a duration such as 100ms", name, text)
	}
	return d, nil
}

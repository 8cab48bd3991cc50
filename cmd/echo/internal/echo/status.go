package echo

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// headerBodySHA256 is the trailer that serveTrailers announces.
const headerBodySHA256 = "X-Echo-Body-Sha256"

// serveStatus answers /status/{code} with that code, 200 to 599, and with each "name:value" of the query's
// `header` as a header of the answer.
func serveStatus(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimPrefix(r.URL.Path, "/status/")
	code, err := strconv.Atoi(text)
	if err != nil || code < 200 || code > 599 {
		badRequest(w, fmt.Errorf("status %q is not a number from 200 to 599", text))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, h := range r.URL.Query()["header"] {
		name, value, _ := strings.Cut(h, ":")
		w.Header().Add(name, value)
	}
	w.WriteHeader(code)
	if code != http.StatusNoContent && code != http.StatusNotModified {
		_, _ = fmt.Fprintf(w, "status %d\n", code)
	}
}

// serveOwn421 is a function's own 421, without x-skipper-misdirected: no proxy may try it again.
func serveOwn421(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the function itself says 421", http.StatusMisdirectedRequest)
}

// serveTrailers tells the request's trailers as JSON, and repeats each as a trailer of the answer beside the
// body's hash.
func (s *Server) serveTrailers(w http.ResponseWriter, r *http.Request) {
	digest, err := digestOf(r.Body)
	if err != nil {
		badRequest(w, err)
		return
	}
	w.Header().Set("Trailer", headerBodySHA256)
	writeJSON(w, s.describe(r, digest, ""))
	// Else HTTP/2 tells the length of a short body, beside which a proxy to HTTP/1.1 has no place for trailers.
	_ = http.NewResponseController(w).Flush()
	w.Header().Set(headerBodySHA256, digest.SHA256)
	for name, values := range r.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// serveCrash ends the process where that is allowed.
func (s *Server) serveCrash(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.Crash == nil {
		http.Error(w, "crashing is not allowed: start with --allow-crash", http.StatusForbidden)
		return
	}
	s.log.Warn("crash as asked")
	s.cfg.Crash()
}

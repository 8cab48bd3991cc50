package function

import (
	"io"
	"net/http"
	"time"
)

// bodyWait is how long the rest of a body is awaited that nobody will read: long enough for the answer to be read.
const bodyWait = time.Second

// Handler puts the whole package in front of an author's handler: Endpoints around Guard.
func (p *Pod) Handler(next http.Handler) http.Handler { return p.Endpoints(p.Guard(next)) }

// Endpoints answers the assignment and the health probes, and gives every other request to next. A probe is a GET or
// HEAD of the health path without x-skipper-instance; a request that the proxy sent for a tenant is none, so an
// author's own health path stays reachable.
func (p *Pod) Endpoints(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == p.cfg.AssignPath:
			p.serveAssign(w, r)
		case p.isProbe(r):
			p.serveHealth(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Guard refuses, with 421 and x-skipper-misdirected, every request that is not for this pod: another UID or several
// in x-skipper-instance, no such header (unless AllowDirect), or no assignment yet. gRPC requests get the same HTTP
// answer, since it is meant for the proxy. The response writer reaches next unwrapped.
func (p *Pod) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := misdirected(p.assigned.Load(), r.Header[HeaderInstance], p.cfg.AllowDirect); reason != "" {
			refuse(w, r, reason)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// misdirected says why a request is not for this pod; empty: it is. instances are the values of x-skipper-instance.
func misdirected(held *Assignment, instances []string, allowDirect bool) string {
	switch {
	case held == nil:
		return "this pod has no tenant yet"
	case len(instances) == 0 && allowDirect:
		return ""
	case len(instances) == 0:
		return "the request names no instance: it did not come through Skipper"
	case len(instances) > 1:
		return "the request names several instances"
	case held.PodUID == "" || instances[0] != held.PodUID:
		return "the request is for another instance"
	}
	return ""
}

func refuse(w http.ResponseWriter, r *http.Request, reason string) {
	w.Header().Set(HeaderMisdirected, "1")
	answerText(w, r, http.StatusMisdirectedRequest, "misdirected: "+reason+"\n")
}

func (p *Pod) isProbe(r *http.Request) bool {
	return r.URL.Path == p.cfg.HealthPath && len(r.Header[HeaderInstance]) == 0 &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func (p *Pod) serveHealth(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Health != nil {
		if err := p.cfg.Health(r.Context()); err != nil {
			answerText(w, r, http.StatusServiceUnavailable, "unhealthy: "+err.Error()+"\n")
			return
		}
	}
	answerText(w, r, http.StatusOK, "ok\n")
}

// answerText writes a short plain answer, whatever has come of the body. A failed write means that the caller is gone,
// which concerns nobody here.
func answerText(w http.ResponseWriter, r *http.Request, status int, text string) {
	leaveBody(w, r)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// leaveBody has the answer sent at once. By itself net/http reads up to 256 KiB of an HTTP/1 body first, and so would
// wait for ever for a client that waits for the answer. The connection ends with the answer, because the rest of the
// body is in the next request's way. A writer that can do none of this is not net/http's, and does as it does.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 {
		return
	}
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex()
	_ = c.SetReadDeadline(time.Now().Add(bodyWait))
	w.Header().Set("Connection", "close")
}

package echo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"
)

// shownBody bounds the body text in an answer; of a longer one only length and hash are told.
const shownBody = 16 << 10

// Echo is the JSON answer of every path without a route.
type Echo struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Query is the raw query.
	Query string `json:"query"`
	Host  string `json:"host"`
	Proto string `json:"proto"`
	// Headers have canonical names. Host is not among them.
	Headers    http.Header `json:"headers"`
	Namespace  string      `json:"namespace"`
	Deployment string      `json:"deployment"`
	Tenant     string      `json:"tenant"`
	Metadata   string      `json:"metadata"`
	Oneshot    bool        `json:"oneshot"`
	PodName    string      `json:"pod_name"`
	PodUID     string      `json:"pod_uid"`
	Digest
	// Body is there if it is valid UTF-8 of at most 16 KiB.
	Body string `json:"body,omitempty"`
	// Trailers are the request's.
	Trailers http.Header `json:"trailers,omitempty"`
}

// Digest tells of a body without repeating it.
type Digest struct {
	Bytes int64 `json:"body_bytes"`
	// SHA256 is in lower-case hex.
	SHA256 string `json:"body_sha256"`
}

func (s *Server) serveEcho(w http.ResponseWriter, r *http.Request) {
	var text prefix
	digest, err := digestOf(io.TeeReader(r.Body, &text))
	if err != nil {
		badRequest(w, err)
		return
	}
	writeJSON(w, s.describe(r, digest, text.text()))
}

func (s *Server) describe(r *http.Request, digest Digest, body string) Echo {
	a := s.assignment()
	return Echo{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host, Proto: r.Proto, Headers: r.Header,
		Namespace: a.Function.Namespace, Deployment: a.Function.Deployment, Tenant: a.Tenant(), Metadata: a.Metadata(),
		Oneshot: a.Function.Oneshot, PodName: a.PodName, PodUID: a.PodUID, Digest: digest, Body: body, Trailers: r.Trailer,
	}
}

// digestOf reads a body to its end, through a buffer of fixed size.
func digestOf(body io.Reader) (Digest, error) {
	hash := sha256.New()
	n, err := io.Copy(hash, body)
	if err != nil {
		return Digest{}, fmt.Errorf("read body after %d bytes: %w", n, err)
	}
	return Digest{Bytes: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// prefix keeps what is written to it while that is small, and nothing once it is not.
type prefix struct {
	kept bytes.Buffer
	full bool
}

func (p *prefix) Write(data []byte) (int, error) {
	if p.full = p.full || p.kept.Len()+len(data) > shownBody; p.full {
		p.kept.Reset()
		return len(data), nil
	}
	return p.kept.Write(data)
}

func (p *prefix) text() string {
	if p.full || !utf8.Valid(p.kept.Bytes()) {
		return ""
	}
	return p.kept.String()
}

// writeJSON answers 200. A failed write means that the client is gone.
func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value)
}

func badRequest(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) }

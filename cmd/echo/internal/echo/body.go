package echo

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"go.uber.org/zap"
)

// chunk is how much of a body is in memory at a time.
const chunk = 32 << 10

// serveBody sends the request's body back as it arrives, both directions at once.
func (s *Server) serveBody(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) { // HTTP/2 always is
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		w.Header().Set("Content-Type", kind)
	}
	if r.Header.Get("Expect") == "" { // else the first read must come before the header, to ask for the body
		w.WriteHeader(http.StatusOK)
		_ = rc.Flush()
	}
	if err := copyFlushed(w, rc, r.Body); err != nil {
		s.log.Debug("echo ended early", zap.Error(err))
	}
}

// copyFlushed writes each piece through to the network as soon as it is read.
func copyFlushed(w io.Writer, rc *http.ResponseController, body io.Reader) error {
	buf := make([]byte, chunk)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := rc.Flush(); ferr != nil {
				return ferr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// serveUpload counts and hashes the body.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request) {
	digest, err := digestOf(r.Body)
	if err != nil {
		badRequest(w, err)
		return
	}
	writeJSON(w, digest)
}

// serveDownload sends ?bytes=N (default 1 MiB) of a fixed pattern, with Content-Length.
func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request) {
	total, err := count(r, "bytes", 1<<20)
	if err != nil {
		badRequest(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	if r.Method == http.MethodHead {
		return
	}
	if _, err := io.CopyN(w, newPattern(), total); err != nil {
		s.log.Debug("download ended early", zap.Error(err))
	}
}

// pattern is an endless stream of the bytes 0 to 255 over and over.
type pattern struct{ at int }

func newPattern() *pattern { return &pattern{} }

func (p *pattern) Read(buf []byte) (int, error) {
	for i := range buf {
		buf[i] = byte(p.at + i)
	}
	p.at = (p.at + len(buf)) % 256
	return len(buf), nil
}

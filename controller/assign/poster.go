package assign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// Headers of the assignment (contract section 2).
const (
	HeaderToken    = "X-Skipper-Token" // #nosec G101 -- a header's name
	HeaderFunction = "X-Skipper-Function"
)

const (
	// maxAnswer is how much of a refusal's body is read.
	maxAnswer = 1 << 10
	// maxQuoted is how much of it is shown, in characters.
	maxQuoted = 200
	// maxAnswerHeader bounds the header that a hostile pod may send.
	maxAnswerHeader = 64 << 10
)

// PosterConfig of a Poster; all fields are required.
type PosterConfig struct {
	// Path of the assignment endpoint, for example /__skipper/assign.
	Path string
	// Timeout of one assignment, from connecting to the end of the answer.
	Timeout time.Duration
	Minter  *Minter
	Log     *zap.Logger
}

// Poster posts assignments. Safe for concurrent use. It keeps no connection
// open and shares none between pods, never follows a redirect, and never goes
// through a proxy.
type Poster struct {
	cfg PosterConfig
	log *zap.Logger
}

// NewPoster returns a Poster.
func NewPoster(cfg PosterConfig) *Poster {
	return &Poster{cfg: cfg, log: cfg.Log.Named("assign")}
}

// Refusal is how a pod did not accept its assignment.
type Refusal struct {
	// Status of the answer; 0 where there was none.
	Status int
	// Reason in words, safe for logs.
	Reason string
	// Err is what kept the answer away; nil with a Status.
	Err error
}

var errNoAddress = errors.New("no address")

// Error is the reason.
func (r *Refusal) Error() string { return r.Reason }

// Unwrap is the cause where there was no answer.
func (r *Refusal) Unwrap() error { return r.Err }

// Assign posts f to the pod at p's address, in p's protocol. Nil means that
// the pod accepted; otherwise the error is a *Refusal. When ctx ended first,
// the pod may have accepted all the same.
func (o *Poster) Assign(ctx context.Context, p pool.Pod, f *skipperpb.Function) error {
	start := time.Now()
	err := o.post(ctx, p, f)
	fields := []zap.Field{
		zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID), zap.String("addr", p.Addr()),
		zap.Stringer("function", fn.KeyOf(f)), zap.Duration("took", time.Since(start)),
	}
	if err != nil {
		o.log.Warn("assignment refused", append(fields, zap.Error(err))...)
		return err
	}
	o.log.Info("assignment accepted", fields...)
	return nil
}

func (o *Poster) post(ctx context.Context, p pool.Pod, f *skipperpb.Function) error {
	if p.Addr() == "" {
		return &Refusal{Reason: "pod has no address to post the assignment to", Err: errNoAddress}
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Timeout)
	defer cancel()
	request, err := o.request(ctx, p, f)
	if err != nil {
		return &Refusal{Reason: "make the assignment: " + err.Error(), Err: err}
	}
	transport := newTransport(p.Protocol)
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return &Refusal{Reason: noAnswer(err, p.Protocol, o.cfg.Timeout), Err: err}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusOK {
		return nil // whatever the body says, and however slowly
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // what could be read of it is enough
	return &Refusal{Status: answer.StatusCode, Reason: refusedWith(answer.StatusCode, body)}
}

func (o *Poster) request(ctx context.Context, p pool.Pod, f *skipperpb.Function) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr()+o.cfg.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	text := headerText(f)
	r.Header.Set("User-Agent", "skipper")
	r.Header.Set(HeaderFunction, string(text))
	r.Header.Set(HeaderToken, o.cfg.Minter.Mint(p, f.GetTenant(), text, time.Now()))
	return r, nil
}

// headerText is fn.Marshal with the one character escaped that JSON lets stand
// and HTTP headers do not, DEL.
func headerText(f *skipperpb.Function) []byte {
	return bytes.ReplaceAll(fn.Marshal(f), []byte{0x7f}, []byte(`\u007f`))
}

// newTransport is for one request: what is shared by no two pods cannot be
// mistaken for one another's when an address is used again.
func newTransport(p xds.Protocol) *http.Transport {
	t := &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{}).DialContext,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		Protocols:              new(http.Protocols),
	}
	if p == xds.H2C {
		t.Protocols.SetUnencryptedHTTP2(true)
		return t
	}
	t.DisableKeepAlives = true
	t.Protocols.SetHTTP1(true)
	return t
}

func noAnswer(err error, p xds.Protocol, timeout time.Duration) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer to the assignment within %s (or the caller's deadline)", timeout)
	case errors.Is(err, context.Canceled):
		return "the caller left before the answer to the assignment"
	}
	var opErr *net.OpError
	if errors.As(err, &opErr) && opErr.Op == "dial" {
		return "no connection for the assignment: " + sanitize(opErr.Err.Error())
	}
	return fmt.Sprintf("no usable answer to the assignment in %s: %s", p, sanitize(err.Error()))
}

func refusedWith(status int, body []byte) string {
	s := "assignment answered with status " + strconv.Itoa(status)
	if text := sanitize(string(body)); text != "" {
		s += ": " + text
	}
	return s
}

// sanitize makes a pod's words fit for logs and error messages: printable, on
// one line, short.
func sanitize(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	out := make([]rune, 0, maxQuoted)
	for _, r := range s {
		if len(out) == maxQuoted {
			return string(out) + "..."
		}
		if !strconv.IsPrint(r) {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

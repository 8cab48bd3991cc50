//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
)

// kind is a way to use a function that can be lost or cut in a way of its own.
type kind string

const (
	get    kind = "get"       // plain, over kept connections
	stream kind = "stream"    // an answer of many seconds, piece by piece
	socket kind = "websocket" // a message and its echo, ten times a second
	upload kind = "upload"    // 5 MB, checked by their hash
	silent kind = "silent"    // an answer that comes late and at once
)

const (
	// beat is the pause between two pieces of a stream or two messages of a WebSocket.
	beat = 100 * time.Millisecond
	// uploadBytes is more than Envoy keeps for a second try.
	uploadBytes = 5 << 20
)

// mix is what runs at a time for each tenant.
type mix struct {
	senders map[kind]int
	// pause is between two requests of one sender; streams and WebSockets follow each other at once, if they went well.
	pause time.Duration
	// Streams and WebSockets take between shortest and longest.
	shortest, longest time.Duration
	// once has each sender send one request; otherwise it goes on until it is stopped.
	once bool
}

// length of the next stream or WebSocket, in whole beats.
func (m mix) length() int {
	d := m.shortest
	if m.longest > m.shortest {
		d += rand.N(m.longest - m.shortest)
	}
	return int(d/beat) + 1
}

// traffic sends a mix until it is stopped.
type traffic struct {
	p      *pool
	mix    mix
	tally  *tally
	http   *http.Client
	want   string // hash of an upload
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startTraffic begins; what it sees goes to the tally. The end of the test stops it at the latest.
func startTraffic(t *testing.T, p *pool, into *tally, functions []*skipperpb.Function, m mix) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	tr := &traffic{p: p, mix: m, tally: into, http: &http.Client{Transport: transport}, want: patternHash(uploadBytes), cancel: cancel}
	for _, f := range functions {
		for k, n := range m.senders {
			for range n {
				tr.wg.Go(func() { tr.repeat(ctx, k, f) })
			}
		}
	}
	t.Cleanup(func() {
		tr.stop()
		transport.CloseIdleConnections()
	})
	return tr
}

// stop sends nothing new, and waits for the ends of what runs.
func (tr *traffic) stop() {
	tr.cancel()
	tr.wg.Wait()
}

// wait is for a mix that is sent once.
func (tr *traffic) wait() { tr.wg.Wait() }

func (tr *traffic) repeat(ctx context.Context, k kind, f *skipperpb.Function) {
	ticker := time.NewTicker(max(tr.mix.pause, time.Millisecond))
	defer ticker.Stop()
	for ctx.Err() == nil {
		o := tr.send(context.WithoutCancel(ctx), k, f)
		tr.tally.add(o)
		if tr.mix.once {
			return
		}
		if k == get || k == upload || o.err != nil {
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}
}

// send does one request of a kind.
func (tr *traffic) send(ctx context.Context, k kind, f *skipperpb.Function) outcome {
	o := outcome{kind: k, tenant: f.GetTenant(), began: time.Now()}
	beats := tr.mix.length()
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(beats)*beat)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { o.sends++ }})
	switch k {
	case get:
		o.err = tr.get(ctx, f, "/", &o)
	case silent:
		o.err = tr.get(ctx, f, fmt.Sprintf("/slow?for=%s", time.Duration(beats)*beat), &o)
	case stream:
		o.err = tr.stream(ctx, f, beats, &o)
	case socket:
		o.err = tr.socket(ctx, f, beats, &o)
	case upload:
		o.err = tr.upload(ctx, f, &o)
	}
	o.ended = time.Now()
	return o
}

func (tr *traffic) get(ctx context.Context, f *skipperpb.Function, path string, o *outcome) error {
	body, err := tr.open(tr.p.request(ctx, http.MethodGet, f, path, nil), o)
	if err != nil {
		return err
	}
	defer body.Close()
	var e echoed
	if err := json.NewDecoder(body).Decode(&e); err != nil {
		return fmt.Errorf("read echo: %w", err)
	}
	if e.PodUID != o.pod || e.Tenant != o.tenant {
		return fmt.Errorf("the body is of pod %s of tenant %q", e.PodUID, e.Tenant)
	}
	return nil
}

func (tr *traffic) stream(ctx context.Context, f *skipperpb.Function, beats int, o *outcome) error {
	path := fmt.Sprintf("/stream?chunks=%d&every=%s", beats, beat)
	body, err := tr.open(tr.p.request(ctx, http.MethodGet, f, path, nil), o)
	if err != nil {
		return err
	}
	defer body.Close()
	in := bufio.NewReader(body)
	for i := 1; i <= beats; i++ {
		if line, err := in.ReadString('\n'); err != nil || line != fmt.Sprintf("chunk %d\n", i) {
			return fmt.Errorf("piece %d of %d is %q: %w", i, beats, line, err)
		}
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		return fmt.Errorf("after the last piece: %q: %w", rest, err)
	}
	return nil
}

func (tr *traffic) upload(ctx context.Context, f *skipperpb.Function, o *outcome) error {
	r := tr.p.request(ctx, http.MethodPost, f, "/upload", io.LimitReader(&pattern{}, uploadBytes))
	r.ContentLength = uploadBytes
	body, err := tr.open(r, o)
	if err != nil {
		return err
	}
	defer body.Close()
	var e echoed
	if err := json.NewDecoder(body).Decode(&e); err != nil {
		return fmt.Errorf("read answer to an upload: %w", err)
	}
	if e.BodyBytes != uploadBytes || e.SHA256 != tr.want {
		return fmt.Errorf("the pod got %d bytes with hash %s", e.BodyBytes, e.SHA256)
	}
	return nil
}

func (tr *traffic) socket(ctx context.Context, f *skipperpb.Function, beats int, o *outcome) error {
	header := http.Header{functionHeader: {string(fn.Marshal(f))}}
	url := "ws" + strings.TrimPrefix(tr.p.gateway, "http") + "/ws"
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: tr.http, HTTPHeader: header})
	if resp != nil {
		o.head(resp)
	}
	if err != nil {
		return fmt.Errorf("open WebSocket: %w", err)
	}
	defer func() { _ = conn.CloseNow() }() // closed already where it went well
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for i := range beats {
		if err := repeatMessage(ctx, conn, fmt.Sprintf("message %d", i)); err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, beats, err)
		}
		<-ticker.C
	}
	if err := conn.Close(websocket.StatusNormalClosure, "done"); err != nil {
		return fmt.Errorf("close WebSocket: %w", err)
	}
	return nil
}

func repeatMessage(ctx context.Context, conn *websocket.Conn, message string) error {
	if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	_, back, err := conn.Read(ctx)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if string(back) != message {
		return fmt.Errorf("came back as %.40q", back)
	}
	return nil
}

// open sends a request and returns the body of a good answer.
func (tr *traffic) open(r *http.Request, o *outcome) (io.ReadCloser, error) {
	resp, err := tr.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	o.head(resp)
	if err := o.check(); err != nil {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, shownBody)) // the status says enough
		resp.Body.Close()
		return nil, fmt.Errorf("%w: %q", err, text)
	}
	return resp.Body, nil
}

// outcome is what became of one request.
type outcome struct {
	kind         kind
	tenant       string
	began, ended time.Time
	sends        int // by the client, which sends again where a kept connection turns out to be closed
	status       int // 0: not even a status came
	reason       reason.Reason
	pod          types.UID // who answered; "" is Skipper or nobody
	of           string    // the tenant that the pod has
	err          error     // nil: whole and right
}

func (o *outcome) head(resp *http.Response) {
	o.status, o.reason = resp.StatusCode, reason.Reason(resp.Header.Get(reason.Header))
	o.pod, o.of = types.UID(resp.Header.Get("X-Echo-Uid")), resp.Header.Get("X-Echo-Tenant")
}

// errStranger is worse than a loss.
var errStranger = errors.New("answered by another tenant's pod")

func (o *outcome) check() error {
	switch {
	case o.of != "" && o.of != o.tenant:
		return fmt.Errorf("%w: %s", errStranger, o.of)
	case o.status != http.StatusOK:
		return fmt.Errorf("status %d", o.status)
	}
	return nil
}

func (o outcome) String() string {
	return fmt.Sprintf("%s %s of %s, after %s, pod %q, status %d, reason %q, sent %d times: %v", o.ended.Format("15:04:05.000"), o.kind, o.tenant,
		o.ended.Sub(o.began).Round(time.Millisecond), o.pod, o.status, o.reason, o.sends, o.err)
}

// patternHash is the hash of the first n bytes of the pattern.
func patternHash(n int64) string {
	h := sha256.New()
	_, _ = io.CopyN(h, &pattern{}, n) // neither end can fail
	return hex.EncodeToString(h.Sum(nil))
}

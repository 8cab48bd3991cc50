package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"skipper/proto/reason"
)

// Outcomes of requests that a pod or nobody answered; what Skipper answers
// itself is "<status> <reason>".
const (
	// OK is an answer of the right pod, all of it.
	OK = "ok"
	// Strayed is an answer of a pod that nobody has.
	Strayed = "answered by nobody's pod"
	// left is a request that the end of the run has cut.
	left = "run over"
)

// Client is one tenant's program.
type Client struct {
	Tenant string
	// Function is the value of X-Skipper-Function.
	Function string
	// Gateways are asked in turn, by base URL.
	Gateways []string
	// HTTP keeps connections; it is shared.
	HTTP   *http.Client
	Ledger *Ledger
	// Rand is the client's own.
	Rand *rand.Rand
	// Think is the mean time between two requests; Busy and Idle are the mean
	// lengths of times with and without requests.
	Think, Busy, Idle time.Duration

	turn int
}

// Run sends requests until the context ends.
func (c *Client) Run(ctx context.Context) {
	for pause(ctx, c.about(c.Idle)/2) {
		for end := time.Now().Add(c.about(c.Busy)); time.Now().Before(end) && ctx.Err() == nil; {
			c.step(ctx)
		}
	}
}

// step is one request and the time after it.
func (c *Client) step(ctx context.Context) {
	think := c.Think
	if c.Ask(ctx, c.choose()) != OK {
		think = c.Idle / 4 // who was turned away does not come back at once
	}
	pause(ctx, c.about(think))
}

// about is a time with that mean.
func (c *Client) about(mean time.Duration) time.Duration {
	return time.Duration(c.Rand.Int64N(2*int64(mean) + 1))
}

// choose says what is asked for next: seldom something that takes time.
func (c *Client) choose() string {
	switch n := c.Rand.IntN(1000); {
	case n < 10:
		return fmt.Sprintf("%s?ms=%d", pathSlow, 100+c.Rand.IntN(2000))
	case n < 15:
		return fmt.Sprintf("%s?ms=%d", pathStream, 500+c.Rand.IntN(3000))
	case n < 20:
		return pathUpload
	case n < 25:
		return pathWebSocket
	}
	return pathQuick
}

// patience of a client with one request; no request of a run takes so long.
const patience = 60 * time.Second

// Ask sends one request and counts how it ended.
func (c *Client) Ask(run context.Context, path string) string {
	ctx, cancel := context.WithTimeout(run, patience)
	defer cancel()
	base := c.Gateways[c.turn%len(c.Gateways)]
	c.turn++
	ask := c.askHTTP
	if path == pathWebSocket {
		ask = c.askWebSocket
	}
	outcome := ask(ctx, base, path)
	if outcome != OK && run.Err() != nil {
		outcome = left
	}
	c.Ledger.Outcome(outcome)
	return outcome
}

func (c *Client) header() http.Header {
	return http.Header{"X-Skipper-Function": {c.Function}, HeaderAsked: {c.Tenant}}
}

func (c *Client) askHTTP(ctx context.Context, base, path string) string {
	method, body := http.MethodGet, io.Reader(nil)
	if path == pathUpload {
		method, body = http.MethodPost, io.Reader(&trickle{ctx: ctx, left: 5})
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return transport(err)
	}
	req.Header = c.header()
	res, err := c.HTTP.Do(req)
	if err != nil {
		return transport(err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or of no use any more
	if res.StatusCode != http.StatusOK {
		return refused(res)
	}
	tenant := res.Header.Get(HeaderTenant)
	c.check(base, path, tenant, res.Header.Get(HeaderUID), res.Header.Get(HeaderRequest))
	outcome := c.read(base, path, res.Body)
	if outcome == OK && tenant == "" {
		return Strayed
	}
	return outcome
}

// read checks every line of an answer.
func (c *Client) read(base, path string, body io.Reader) string {
	lines := bufio.NewScanner(body)
	n := 0
	for ; lines.Scan(); n++ {
		c.checkText(base, path, lines.Bytes())
	}
	switch err := lines.Err(); {
	case err != nil:
		return "cut: " + transport(err)
	case n == 0:
		return "empty answer"
	}
	return OK
}

func (c *Client) askWebSocket(ctx context.Context, base, path string) string {
	url := "ws" + strings.TrimPrefix(base, "http") + path
	conn, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c.HTTP, HTTPHeader: c.header()}) //nolint:bodyclose // the library has read it
	if err != nil {
		if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
			return refused(res)
		}
		return transport(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for range 1 + c.Rand.IntN(20) {
		if err := conn.Write(ctx, websocket.MessageText, []byte("who are you")); err != nil {
			return "cut: " + transport(err)
		}
		_, text, err := conn.Read(ctx)
		if err != nil {
			return "cut: " + transport(err)
		}
		c.checkText(base, path, text)
		pause(ctx, tick)
	}
	return OK
}

func (c *Client) checkText(base, path string, text []byte) {
	var i identity
	if err := json.Unmarshal(text, &i); err != nil {
		c.Ledger.Violation("", fmt.Sprintf("%q asked %s%s and got %.200q, which no pod says", c.Tenant, base, path, text), "")
		return
	}
	c.check(base, path, i.Tenant, i.UID, i.Request)
}

// check is what the run is for.
func (c *Client) check(base, path, tenant, uid, request string) {
	if tenant != c.Tenant && tenant != "" || uid == "" {
		c.Ledger.Violation(request, fmt.Sprintf("%q asked %s%s and was answered by %q, pod %s, request %s", c.Tenant, base, path, tenant, uid, request), "")
	}
}

// refused names an answer that is not the pod's.
func refused(res *http.Response) string {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16)) // so that the connection can be kept
	return fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get(reason.Header))
}

// transport names an error in few words.
func transport(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "transport: timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "transport: refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "transport: reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "transport: closed"
	case websocket.CloseStatus(err) != -1:
		return fmt.Sprintf("transport: WebSocket closed with %d", websocket.CloseStatus(err))
	}
	return "transport: other"
}

// trickle is a body that comes slowly.
type trickle struct {
	ctx  context.Context //nolint:containedctx // that of the one request whose body it is
	left int
}

func (t *trickle) Read(b []byte) (int, error) {
	if t.left == 0 {
		return 0, io.EOF
	}
	if !pause(t.ctx, tick) {
		return 0, t.ctx.Err()
	}
	t.left--
	return copy(b, "a drop of a body"), nil
}

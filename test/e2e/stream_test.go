//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// A WebSocket lives for a minute, and each message comes back. Not parallel, since a gateway on which nothing else
// happens for so long is the harder case: Envoy lets go of what it does not use, and must survive the end of this.
func TestWebSocketForAMinute(t *testing.T) {
	const messages, pause = 60, time.Second
	p := newWorld(t).newPool(t, 1)
	conn := p.dialWebSocket(t, p.function("a"))
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for i := range messages {
		exchange(t, conn, fmt.Sprintf("message %d", i))
		<-ticker.C
	}
	exchange(t, conn, strings.Repeat("long ", 100_000))
	if err := conn.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Errorf("close: %v", err)
	}
	held := p.pods.held(p.tenant("a"))
	if len(held) != 1 {
		t.Fatalf("the tenant has %d pods:%s", len(held), p.pods)
	}
	p.wantSteady(t, "a", held[0].pod.UID)
	p.wantClaims(t, p.tenant("a"), 1)
}

func (p *pool) dialWebSocket(t *testing.T, f *skipperpb.Function) *websocket.Conn {
	t.Helper()
	header := http.Header{functionHeader: {string(fn.Marshal(f))}}
	url := "ws" + strings.TrimPrefix(p.gateway, "http") + "/ws"
	conn, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: p.http, HTTPHeader: header})
	if err != nil {
		t.Fatalf("open WebSocket: %v, response %+v", err, resp)
	}
	t.Cleanup(func() { _ = conn.CloseNow() }) // closed already where the test went well
	conn.SetReadLimit(-1)
	return conn
}

// exchange sends one message and waits for it to come back.
func exchange(t *testing.T, conn *websocket.Conn, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		t.Fatalf("send %.20q: %v", message, err)
	}
	_, back, err := conn.Read(ctx)
	if err != nil || string(back) != message {
		t.Fatalf("%d bytes %.20q came back as %d bytes %.20q, %v", len(message), message, len(back), back, err)
	}
}

// Server-sent events arrive when they are sent: the second of these is an hour away from the first.
func TestServerSentEventsArriveOneByOne(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	for _, row := range []struct {
		query  string
		events int
	}{{"events=2&every=1h", 1}, {"events=0&every=200ms", 5}} {
		ctx, leave := context.WithCancel(t.Context())
		resp, err := p.http.Do(p.request(ctx, http.MethodGet, p.function("a"), "/sse?"+row.query, nil))
		if err != nil {
			t.Fatal(err)
		}
		if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("status %d, content type %q", resp.StatusCode, kind)
		}
		readEvents(t, bufio.NewReader(resp.Body), row.events)
		leave()
		resp.Body.Close()
	}
}

// readEvents reads whole events numbered from 1.
func readEvents(t *testing.T, in *bufio.Reader, n int) {
	t.Helper()
	for i := 1; i <= n; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("read event %d: %v", i, err)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok && strings.TrimSpace(id) != fmt.Sprint(i) {
			t.Errorf("event %d has id %q", i, id)
		}
		if line == "\n" {
			i++
		}
	}
}

// Neither direction is buffered: each line is sent after the one before has come back.
func TestConversationInOneRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, p := range map[string]*pool{"http1": w.newPool(t, 1), "h2c": w.newPool(t, 1, withH2C)} {
		out, in := io.Pipe()
		resp, err := p.http.Do(p.request(t.Context(), http.MethodPost, p.function("a"), "/echo", out))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range 20 {
			want := fmt.Sprintf("line %d\n", i)
			if _, err := io.WriteString(in, want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Fatalf("%s: got %q, %v, want %q", name, got, err, want)
			}
		}
		in.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
			t.Errorf("%s: after the end: %q, %v", name, rest, err)
		}
		resp.Body.Close()
	}
}

const (
	bigBody = 100 << 20
	// memoryMargin is how far extproc's memory may rise while bigBody passes by: far less than the body.
	memoryMargin = 32 << 20
)

// pattern is the bytes 0 to 255 over and over, as the example function sends them.
type pattern struct{ at int }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.at + i)
	}
	p.at += len(b)
	return len(b), nil
}

// A body of 100 MB passes in both directions, and extproc does not hold it.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	mustEcho(t, p.get(t.Context(), p.function("a"), "/"))
	hash := sha256.New()
	if _, err := io.CopyN(hash, &pattern{}, bigBody); err != nil {
		t.Fatal(err)
	}
	want := hex.EncodeToString(hash.Sum(nil))
	extproc := processOf(t, p.systemPod(t, gatewayName), "extproc")
	extproc.resetPeak(t)
	before := extproc.peakBytes(t)
	wantUpload(t, p, want)
	wantDownload(t, p, want)
	if peak := extproc.peakBytes(t); peak > before+memoryMargin {
		t.Errorf("extproc's memory rose from %d to %d MiB", before>>20, peak>>20)
	}
}

func wantUpload(t *testing.T, p *pool, want string) {
	t.Helper()
	a := p.send(p.request(t.Context(), http.MethodPost, p.function("a"), "/upload", io.LimitReader(&pattern{}, bigBody)))
	var got echoed
	if err := json.Unmarshal(a.body, &got); err != nil || got.BodyBytes != bigBody || got.SHA256 != want {
		t.Errorf("upload: want %d bytes with hash %s: %v, %s", bigBody, want, err, a)
	}
}

func wantDownload(t *testing.T, p *pool, want string) {
	t.Helper()
	resp, err := p.http.Do(p.request(t.Context(), http.MethodGet, p.function("a"), fmt.Sprintf("/download?bytes=%d", bigBody), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, resp.Body)
	if got := hex.EncodeToString(hash.Sum(nil)); err != nil || n != bigBody || got != want {
		t.Errorf("download: status %d, %d bytes with hash %s, %v; want %d with %s", resp.StatusCode, n, got, err, bigBody, want)
	}
}

// Trailers pass in both directions, whatever protocol either side speaks.
func TestTrailers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pools := map[string]*pool{"http1": w.newPool(t, 1), "h2c": w.newPool(t, 1, withH2C)}
	for client, transport := range map[string]*http.Transport{"http1": {}, "h2c": h2cTransport()} {
		defer transport.CloseIdleConnections()
		for pod, p := range pools {
			t.Run(client+" to "+pod, func(t *testing.T) { wantTrailers(t, p, &http.Client{Transport: transport}) })
		}
	}
}

// h2cTransport speaks HTTP/2 without TLS from the first byte.
func h2cTransport() *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}

func wantTrailers(t *testing.T, p *pool, c *http.Client) {
	r := p.request(t.Context(), http.MethodPost, p.function("a"), "/trailers", io.MultiReader(strings.NewReader("hello")))
	r.Trailer = http.Header{"X-Sum": {"of the body"}}
	a := sendWith(c, r)
	e := mustEcho(t, a)
	if got := e.Trailers.Get("X-Sum"); got != "of the body" || e.BodyBytes != 5 {
		t.Errorf("the pod saw %d bytes and trailers %v", e.BodyBytes, e.Trailers)
	}
	if a.trailer.Get("X-Sum") != "of the body" || a.trailer.Get("X-Echo-Body-Sha256") != e.SHA256 {
		t.Errorf("the client saw trailers %v, want x-sum and the hash %s", a.trailer, e.SHA256)
	}
}

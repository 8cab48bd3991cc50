package echo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/cmd/echo/internal/echo"
)

// A conversation proves that neither direction waits for the other's end: each line is sent after the last came back.
func TestEchoOfABodyIsUnbuffered(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		out, in := io.Pipe()
		r := request(t, http.MethodPost, "http://"+addr+"/echo", out)
		r.Header.Set("Content-Type", "text/x-lines")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for i := range 20 {
			want := fmt.Sprintf("line %d\n", i)
			if _, err := io.WriteString(in, want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		in.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
			t.Errorf("after the end: %q, %v", rest, err)
		}
		if kind := resp.Header.Get("Content-Type"); kind != "text/x-lines" {
			t.Errorf("content type %q", kind)
		}
	})
}

func TestEchoOfABodyAsksForItWhenTheClientWaits(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		r := request(t, http.MethodPost, "http://"+addr+"/echo", strings.NewReader("hello"))
		r.Header.Set("Expect", "100-continue")
		if _, body := do(t, c, r); body != "hello" {
			t.Errorf("got %q", body)
		}
	})
}

// 8 MiB in odd pieces come back unchanged and are hashed right.
func TestLargeBodies(t *testing.T) {
	addr := start(t, sample(), nil)
	data := make([]byte, 8<<20+3)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	sum := sha256.Sum256(data)
	want := echo.Digest{Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	both(t, func(t *testing.T, c *http.Client) {
		_, body := do(t, c, request(t, http.MethodPost, "http://"+addr+"/echo", bytes.NewReader(data)))
		if body != string(data) {
			t.Errorf("echo differs: %d bytes of %d", len(body), len(data))
		}
		_, body = do(t, c, request(t, http.MethodPut, "http://"+addr+"/upload", bytes.NewReader(data)))
		if diff := cmp.Diff(want, decode[echo.Digest](t, body)); diff != "" {
			t.Errorf("upload (-want +got):\n%s", diff)
		}
	})
}

func TestDownload(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, size := range []int{0, 1, 255, 1 << 20, 1<<20 + 77} {
			url := fmt.Sprintf("http://%s/download?bytes=%d", addr, size)
			resp, body := do(t, c, request(t, http.MethodGet, url, http.NoBody))
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(i % 256)
			}
			if resp.ContentLength != int64(size) || body != string(want) {
				t.Errorf("size %d: length %d, %d bytes, right %t", size, resp.ContentLength, len(body), body == string(want))
			}
			resp, body = do(t, c, request(t, http.MethodHead, url, http.NoBody))
			if resp.ContentLength != int64(size) || body != "" {
				t.Errorf("HEAD of size %d: length %d, body %q", size, resp.ContentLength, body)
			}
		}
	})
}

func TestStreams(t *testing.T) {
	event := func(i int) string {
		return fmt.Sprintf("id: %d\nevent: tick\ndata: {\"n\":%d,\"pod_name\":\"pod-1\"}\n\n", i, i)
	}
	rows := []struct{ path, kind, want string }{
		{"/stream?chunks=3&every=1ms", "text/plain; charset=utf-8", "chunk 1\nchunk 2\nchunk 3\n"},
		{"/stream?chunks=1&every=1h", "text/plain; charset=utf-8", "chunk 1\n"},
		{"/sse?events=2&every=0s", "text/event-stream", event(1) + event(2)},
	}
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, row := range rows {
			resp, body := do(t, c, request(t, http.MethodGet, "http://"+addr+row.path, http.NoBody))
			if body != row.want || resp.Header.Get("Content-Type") != row.kind || resp.ContentLength != -1 {
				t.Errorf("%s: %q, type %q, length %d", row.path, body, resp.Header.Get("Content-Type"), resp.ContentLength)
			}
		}
	})
}

// The first piece arrives while the next is an hour away, and a client that leaves ends the stream: the server's
// orderly stop at the end of the test would otherwise wait for it.
func TestEndlessStreamsEndWithTheirClient(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, path := range []string{"/stream?chunks=0&every=1h", "/sse?events=0&every=1h"} {
			ctx, leave := context.WithCancel(t.Context())
			resp, err := c.Do(request(t, http.MethodGet, "http://"+addr+path, http.NoBody).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			first := make([]byte, 3)
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			leave()
			resp.Body.Close()
		}
	})
}

func TestSlowAnswer(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		_, body := do(t, c, request(t, http.MethodPost, "http://"+addr+"/slow?for=5ms", strings.NewReader("hello")))
		if got := decode[echo.Echo](t, body); got.SHA256 != helloSHA256 || got.Path != "/slow" {
			t.Errorf("got %+v", got)
		}
		ctx, leave := context.WithCancel(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { leave() }})
		r := request(t, http.MethodPost, "http://"+addr+"/slow?for=1h", strings.NewReader("hello")).WithContext(ctx)
		if resp, err := c.Do(r); err == nil {
			resp.Body.Close()
			t.Error("an answer came an hour early")
		}
	})
}

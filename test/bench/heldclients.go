package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// heldWorkers is how many clients act at once when many open or end.
const heldWorkers = 64

// heldPatience is how long a client waits for a part of its answer.
const heldPatience = 30 * time.Second

// heldClient is one connection with one request on it: every second a WebSocket,
// the others an answer that is late.
type heldClient struct {
	conn   net.Conn
	reader *bufio.Reader
	socket bool
}

// heldCrowd is all clients of a contestant, and what went wrong for them.
type heldCrowd struct {
	clients []*heldClient

	mu       sync.Mutex
	failures map[string]int // guarded by mu
}

func newHeldCrowd(n int) *heldCrowd {
	return &heldCrowd{clients: make([]*heldClient, n), failures: map[string]int{}}
}

// each has every client do something; errors are counted by their text.
func (c *heldCrowd) each(do func(i int) error) {
	_ = inParallel(len(c.clients), heldWorkers, func(i int) error {
		if err := do(i); err != nil {
			c.mu.Lock()
			c.failures[err.Error()]++
			c.mu.Unlock()
		}
		return nil
	})
}

// open sends every request to addr.
func (c *heldCrowd) open(ctx context.Context, addr string) {
	c.each(func(i int) error {
		h, err := openHeld(ctx, addr, i%2 == 1)
		c.clients[i] = h
		return err
	})
}

// finish reads the answers and closes the connections.
func (c *heldCrowd) finish() {
	c.each(func(i int) error {
		if c.clients[i] == nil {
			return nil // counted when it was to be opened
		}
		return c.clients[i].finish()
	})
}

// failed is how many went wrong, and how.
func (c *heldCrowd) failed() (n int, how map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.failures {
		n += k
	}
	return n, c.failures
}

func openHeld(ctx context.Context, addr string, socket bool) (*heldClient, error) {
	conn, err := (&net.Dialer{Timeout: heldPatience}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	h := &heldClient{conn: conn, reader: bufio.NewReaderSize(conn, 1<<10), socket: socket}
	if err := h.ask(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return h, nil
}

func (h *heldClient) ask() error {
	head := "GET " + heldAnswer + " HTTP/1.1\r\nHost: bench\r\n" + benchHeader() + "\r\n"
	if h.socket {
		head = strings.Replace(head, heldAnswer, heldSocket, 1) + "Connection: upgrade\r\nUpgrade: websocket\r\n"
	}
	if _, err := io.WriteString(h.conn, head+"\r\n"); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if !h.socket {
		return nil
	}
	_, err := h.answer(http.StatusSwitchingProtocols)
	return err
}

// answer reads an answer, whose body is empty for a WebSocket.
func (h *heldClient) answer(status int) (string, error) {
	if err := h.conn.SetReadDeadline(time.Now().Add(heldPatience)); err != nil {
		return "", fmt.Errorf("set deadline: %w", err)
	}
	res, err := http.ReadResponse(h.reader, nil)
	if err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // it is read, or the connection ends
	if res.StatusCode != status {
		return "", fmt.Errorf("answer %s %s", res.Status, res.Header.Get("x-skipper-reason"))
	}
	if h.socket {
		return "", nil
	}
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// finish expects the answer, or an echo of the WebSocket, and closes.
func (h *heldClient) finish() error {
	defer func() { _ = h.conn.Close() }()
	got, want := "", heldText
	var err error
	if h.socket {
		want = "still there?\n"
		got, err = h.echo(want)
	} else {
		got, err = h.answer(http.StatusOK)
	}
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("answer is %q", got)
	}
	return nil
}

func (h *heldClient) echo(text string) (string, error) {
	if err := h.conn.SetDeadline(time.Now().Add(heldPatience)); err != nil {
		return "", fmt.Errorf("set deadline: %w", err)
	}
	if _, err := io.WriteString(h.conn, text); err != nil {
		return "", fmt.Errorf("write to WebSocket: %w", err)
	}
	got, err := h.reader.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read from WebSocket: %w", err)
	}
	return got, nil
}

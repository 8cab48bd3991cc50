package soak

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
)

// echo answers lines with lines that begin with its name.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for s := bufio.NewScanner(c); s.Scan(); {
					_, _ = io.WriteString(c, name+s.Text()+"\n")
				}
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// line is a connection that is read by lines.
type line struct {
	net.Conn
	in *bufio.Reader
}

func dialLink(t *testing.T, l *Link) line {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return line{c, bufio.NewReader(c)}
}

func (l line) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(l, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (l line) hear(t *testing.T) string {
	t.Helper()
	text, err := l.in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Connections go round; while the link is shut nothing passes and nothing
// breaks; what waited comes when it opens.
func TestLinkHoldsBytesUp(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	l, err := NewLink("127.0.0.1:0", echo(t, "one "), echo(t, "two "))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	a, b := dialLink(t, l), dialLink(t, l)
	a.say(t, "x")
	b.say(t, "x")
	if first, second := a.hear(t), b.hear(t); first == second {
		t.Errorf("both connections lead to %q", first)
	}
	l.Shut()
	a.say(t, "y")
	heard := make(chan string)
	go func() {
		text, _ := a.in.ReadString('\n')
		heard <- text
	}()
	c := dialLink(t, l)
	select {
	case text := <-heard:
		t.Fatalf("%q passed a shut link", text)
	default:
	}
	l.Open()
	if text := <-heard; len(text) == 0 || text[len(text)-2] != 'y' {
		t.Errorf("heard %q after the link was opened", text)
	}
	c.say(t, "z")
	c.hear(t)
}

func TestLinkPassesByTheDead(t *testing.T) {
	l, err := NewLink("127.0.0.1:0", "127.0.0.1:1", echo(t, "alive "))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		c := dialLink(t, l)
		c.say(t, "x")
		if got := c.hear(t); got != "alive x\n" {
			t.Errorf("heard %q", got)
		}
	}
}

// Only watches are held up.
func TestFreezeWatches(t *testing.T) {
	g := NewGate()
	api := httptest.NewServer(FreezeWatches(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), g))
	defer api.Close()
	get := func(query string) (*bufio.Reader, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := api.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(res.Body), func() { cancel(); _ = res.Body.Close() }
	}
	g.Shut()
	if g.IsOpen() {
		t.Fatal("a shut gate is open")
	}
	plain, end := get("/")
	if text, err := plain.ReadString('\n'); err != nil || text != "event\n" {
		t.Errorf("no watch: %q, %v", text, err)
	}
	end()
	opened := make(chan bool, 1)
	go func() {
		g.Wait(t.Context())
		opened <- true
	}()
	go g.Open()
	watch, end := get("/?watch=true")
	defer end()
	if text, err := watch.ReadString('\n'); err != nil || text != "event\n" {
		t.Errorf("watch: %q, %v", text, err)
	}
	<-opened
}

func TestGateEndsWithTheContext(t *testing.T) {
	g := NewGate()
	g.Shut()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(ctx); err == nil {
		t.Error("passed a shut gate")
	}
	g.Open()
	if err := g.Wait(ctx); err != nil {
		t.Errorf("an open gate: %v", err)
	}
}

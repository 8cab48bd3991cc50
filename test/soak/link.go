package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout is short, because a controller that does not listen says so at
// once on this machine.
const dialTimeout = time.Second

// Link is the network between one client and all controllers: an address whose
// connections lead to one controller after the other, like those of a Service.
// While its gate is shut no byte passes, in either direction, and nobody is
// told: that is a partition. Safe for concurrent use.
type Link struct {
	*Gate
	listener net.Listener
	targets  []string
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu   sync.Mutex
	next int // guarded by mu
}

// NewLink listens at an address until Close.
func NewLink(at string, targets ...string) (*Link, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("listen for link: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &Link{Gate: NewGate(), listener: l, targets: targets, cancel: cancel}
	x.running.Go(func() { x.accept(ctx) })
	return x, nil
}

// Addr is where the link listens.
func (l *Link) Addr() *net.TCPAddr {
	addr, _ := l.listener.Addr().(*net.TCPAddr)
	return addr
}

// Close cuts all connections and waits until they have ended.
func (l *Link) Close() {
	l.cancel()
	_ = l.listener.Close() // it ends the accept loop, whatever it says
	l.running.Wait()
}

func (l *Link) accept(ctx context.Context) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.serve(ctx, client) })
	}
}

// serve passes bytes until either end is gone.
func (l *Link) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	if l.Wait(ctx) != nil {
		return
	}
	server, err := l.dial(ctx)
	if err != nil {
		return // the client sees its connection close
	}
	ctx, cancel := context.WithCancel(ctx)
	var pumps sync.WaitGroup
	pumps.Go(func() {
		defer cancel()
		l.pump(ctx, server, client)
	})
	pumps.Go(func() {
		defer cancel()
		l.pump(ctx, client, server)
	})
	<-ctx.Done()
	_ = client.Close()
	_ = server.Close()
	pumps.Wait()
}

// dial tries every controller once, beginning with the next one's turn.
func (l *Link) dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	first := l.next
	l.next++
	l.mu.Unlock()
	var errs []error
	for i := range l.targets {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", l.targets[(first+i)%len(l.targets)])
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (l *Link) pump(ctx context.Context, to io.Writer, from io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if l.Wait(ctx) != nil {
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

package replicas

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
)

// WatchOptions of Watch; the zero value is good.
type WatchOptions struct {
	// Probe is the time between two probes; 0 is DefaultProbe. Servers must
	// allow pings that frequent.
	Probe time.Duration
	// Log says which connections were closed for their silence; nil nothing.
	Log *zap.Logger
}

// Watch returns credentials that probe each connection made with them, and close
// it when it falls silent; see the package comment. They are a client's, for
// HTTP/2 only.
func Watch(creds credentials.TransportCredentials, o WatchOptions) credentials.TransportCredentials {
	if o.Probe == 0 {
		o.Probe = DefaultProbe
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &watching{creds, o}
}

type watching struct {
	credentials.TransportCredentials
	opts WatchOptions
}

// ClientHandshake implements credentials.TransportCredentials. What it wraps is
// the connection inside TLS, where frames can be told apart.
func (w *watching) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return newWatched(conn, w.opts), info, nil //nolint:contextcheck // the context is the handshake's; the connection outlives it
}

// Clone implements credentials.TransportCredentials.
func (w *watching) Clone() credentials.TransportCredentials {
	return &watching{w.TransportCredentials.Clone(), w.opts}
}

// ping is an HTTP/2 PING with data that gRPC, which pings by itself to measure
// the connection, does not take for the answer to one of its own.
var ping = []byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00skipper?")

// watched is a connection that is probed until Close. Like any net.Conn it may
// be used by several goroutines.
type watched struct {
	net.Conn
	opts WatchOptions
	stop context.CancelFunc
	runs sync.WaitGroup

	spoke chan struct{}    // closed when the peer has spoken first
	once  sync.Once        // of spoke
	ask   chan chan<- bool // asks the prober for a probe; the answer: written or not
	reads atomic.Uint64    // that brought something
	begun atomic.Uint64    // writes
	ended atomic.Uint64    // writes

	mu  sync.Mutex // held while writing, so that nothing is written inside a frame
	out frames     // guarded by mu
}

func newWatched(conn net.Conn, o WatchOptions) *watched {
	ctx, stop := context.WithCancel(context.Background())
	w := &watched{Conn: conn, opts: o, stop: stop, spoke: make(chan struct{}), ask: make(chan chan<- bool)}
	w.runs.Go(func() { w.probe(ctx) })
	w.runs.Go(func() { w.watch(ctx) })
	return w
}

// Close implements net.Conn. It returns when nothing runs any more.
func (w *watched) Close() error {
	w.stop()
	err := w.Conn.Close()
	w.runs.Wait()
	return err
}

// Read implements net.Conn.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.reads.Add(1)
		w.once.Do(func() { close(w.spoke) })
	}
	return n, err
}

// Write implements net.Conn.
func (w *watched) Write(b []byte) (int, error) {
	w.begun.Add(1)
	defer w.ended.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.Conn.Write(b)
	w.out.advance(b[:n])
	return n, err
}

// probe writes probes where none would end up inside a frame. Those that fail
// are not reported: the reader sees a broken connection too.
func (w *watched) probe(ctx context.Context) {
	for {
		select {
		case written := <-w.ask:
			written <- w.writePing()
		case <-ctx.Done():
			return
		}
	}
}

func (w *watched) writePing() bool {
	w.begun.Add(1)
	defer w.ended.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.out.between() {
		return false
	}
	_, err := w.Conn.Write(ping)
	return err == nil
}

// watch closes the connection when the peer falls silent. Until the peer has
// spoken first, gRPC's own limit on connecting holds.
func (w *watched) watch(ctx context.Context) {
	select {
	case <-w.spoke:
	case <-ctx.Done():
		return
	}
	var v vigil
	var d verdict
	for heard := w.reads.Load(); !d.dead; {
		r, over := w.round(ctx, v.wantsProbe())
		if over {
			return
		}
		now := w.reads.Load()
		r.heard, heard = now != heard, now
		v, d = v.after(r, w.opts.Probe)
	}
	w.opts.Log.Warn("connection to controller closed", zap.Stringer("controller", w.RemoteAddr()), zap.String("reason", d.why),
		zap.Duration("for", time.Duration(v.missed)*w.opts.Probe), zap.Int("unanswered_probes", v.probes))
	_ = w.Conn.Close() // gRPC closes it again
}

// round lets one round pass, which begins anew when the probe is really
// written. All but what was heard is in the result.
func (w *watched) round(ctx context.Context, probe bool) (r round, over bool) {
	begun, ended := w.begun.Load(), w.ended.Load()
	start, timer := time.Now(), time.NewTimer(w.opts.Probe)
	defer timer.Stop()
	written := make(chan bool, 1)
	ask, hangs := w.ask, begun > ended
	if !probe {
		ask = nil
	}
	for {
		select {
		case ask <- written:
			ask, hangs = nil, true
		case r.probed = <-written:
			hangs, start = begun > ended, time.Now()
			timer.Reset(w.opts.Probe)
		case <-timer.C:
			r.late = time.Since(start) - w.opts.Probe
			r.stuck = hangs && w.ended.Load() == ended && w.begun.Load() > ended
			return r, false
		case <-ctx.Done():
			return round{}, true
		}
	}
}

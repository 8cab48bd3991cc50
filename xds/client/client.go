// Package client is the delta xDS client by which extproc learns the instances
// of the functions that it serves.
//
// One goroutine, that of Run, owns the stream and makes all callbacks, in the
// order in which the controller sent the lists. Subscribe and Unsubscribe only
// note what is wanted and may be called from the request path. The client keeps
// names and versions, never the lists, so its memory is bounded by the
// subscriptions; after a reconnect only what has changed is sent again.
package client

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	skipperpb "skipper/proto"
	"skipper/xds"
)

// Options of a Client.
type Options struct {
	// Conn leads to the controllers; build it with DialOptions. Required.
	Conn grpc.ClientConnInterface
	// Node says who we are; its id tells subscribers apart.
	Node *corev3.Node
	// Logger; nil logs nothing.
	Logger *zap.Logger
	// OnUpdate hears the full list of a function, also if it is empty, and
	// owns the message. It may come twice with the same list. Required.
	OnUpdate func(*skipperpb.FunctionInstances)
	// OnRemove hears that the controller no longer knows a function that is
	// still subscribed to; nil ignores it. Skipper's controller sends an empty
	// list instead.
	OnRemove func(name string)
}

// Client subscribes to the instances of functions. Use New, then Run. It is
// safe for concurrent use, callbacks included.
type Client struct {
	opts Options
	wake chan struct{} // size 1: something is to be requested

	mu     sync.Mutex
	wanted map[string]string // subscribed name to the version that was delivered; "" for none
	todo   map[string]bool   // names whose (un)subscription is not sent yet
	sent   map[string]bool   // names that this stream is subscribed to
	synced bool
	since  time.Time
}

// New returns a client without subscriptions.
func New(o Options) *Client {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.OnRemove == nil {
		o.OnRemove = func(string) {}
	}
	o.Logger = o.Logger.Named("xds")
	return &Client{opts: o, wake: make(chan struct{}, 1), wanted: map[string]string{}, todo: map[string]bool{}, sent: map[string]bool{}}
}

// DialOptions notice a dead controller within fifteen seconds, also while
// nothing is sent, and try again within about a second, where gRPC by itself
// would wait up to two minutes.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: firstWait, Multiplier: 2, Jitter: 0.2, MaxDelay: maxWait},
			MinConnectTimeout: 2 * time.Second,
		}),
	}
}

// Subscribe asks for the instances of a function by its resource name; see
// package xds. It does not block. To subscribe again to a name asks for its
// list afresh, with the newest version number. A name that is none is said in
// the log and ignored, because the controller would end the stream over it.
func (c *Client) Subscribe(name string) {
	if _, err := xds.ParseInstancesName(name); err != nil {
		c.opts.Logger.Warn("subscription ignored", zap.Error(err))
		return
	}
	c.mu.Lock()
	c.wanted[name] = ""
	c.todo[name] = true
	c.mu.Unlock()
	c.notify()
}

// Unsubscribe ends a subscription. It does not block; a callback that is
// running may still be about the name, later ones are not.
func (c *Client) Unsubscribe(name string) {
	c.mu.Lock()
	delete(c.wanted, name)
	if c.sent[name] {
		c.todo[name] = true
	} else { // nothing is to be ended, and names that nobody wants must not pile up without a controller
		delete(c.todo, name)
	}
	c.mu.Unlock()
	c.notify()
}

func (c *Client) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Synced says whether the client is in touch with a controller that knows the
// world, and since when. Not connected, it is the time at which the connection
// was lost, or the zero time if there never was one; a controller that dies
// without a word is noticed within the keepalive time of DialOptions.
func (c *Client) Synced() (since time.Time, connected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.synced
}

func (c *Client) online(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced, c.since = true, now
}

// lost notes the end of a stream and returns how long it was synced.
func (c *Client) lost(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return 0
	}
	lasted := now.Sub(c.since)
	c.synced, c.since = false, now
	return lasted
}

// Reconnects wait at first and at most this long, with jitter.
const (
	firstWait = 50 * time.Millisecond
	maxWait   = time.Second
)

// Run keeps one stream to a controller until the context ends, and returns its
// error. It must be called once.
func (c *Client) Run(ctx context.Context) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstWait), backoff.WithMaxInterval(maxWait), backoff.WithMaxElapsedTime(0))
	for {
		err := c.session(ctx)
		if c.lost(time.Now()) > maxWait { // else it may be we whom it cannot stand
			wait.Reset()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d := wait.NextBackOff()
		c.opts.Logger.Info("xDS stream ended, connecting again", zap.Error(err), zap.Duration("wait", d))
		if err := sleep(ctx, d); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

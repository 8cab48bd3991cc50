package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// scheme begins targets that are resolved here.
const scheme = "skipper"

// Target is what to dial, with DialOptions, for all addresses of a host.
func Target(host, port string) string { return scheme + ":///" + net.JoinHostPort(host, port) }

// DefaultEvery is soon against a rollout, and one question a second is little
// for a cluster's DNS.
const DefaultEvery = time.Second

// Options of DialOptions; the zero value is good.
type Options struct {
	// Every is the time between two look-ups of the name; 0 is DefaultEvery.
	Every time.Duration
	// Lookup returns the addresses of a host; nil asks the system.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// DialOptions resolve targets of Target.
func DialOptions(o Options) []grpc.DialOption {
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return []grpc.DialOption{grpc.WithResolvers(&builder{o}), grpc.WithNoProxy()}
}

// builder implements resolver.Builder.
type builder struct{ opts Options }

func (b *builder) Scheme() string { return scheme }

func (b *builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	host, port, err := net.SplitHostPort(target.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("read target %s: %w", target.Endpoint(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &watch{opts: b.opts, host: host, port: port, cc: cc, cancel: cancel}
	r.running.Go(func() { r.run(ctx) })
	return r, nil
}

// watch follows the addresses of one host, on a goroutine that Close ends. It
// implements resolver.Resolver.
type watch struct {
	opts       Options
	host, port string
	cc         resolver.ClientConn
	cancel     context.CancelFunc
	running    sync.WaitGroup

	known []netip.Addr // of the goroutine; sorted
}

// ResolveNow does nothing: the next look-up is at most a moment away.
func (w *watch) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (w *watch) Close() {
	w.cancel()
	w.running.Wait()
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look passes on what has changed. While the name cannot be resolved, the last
// addresses stay: DNS may be down where controllers are not.
func (w *watch) look(ctx context.Context) {
	found, err := w.lookup(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if len(w.known) == 0 {
			w.cc.ReportError(fmt.Errorf("look up controllers %s: %w", w.host, err))
		}
		return
	}
	if slices.Equal(found, w.known) {
		return
	}
	w.known = found
	endpoints := make([]resolver.Endpoint, len(found))
	for i, ip := range found {
		endpoints[i].Addresses = []resolver.Address{{Addr: net.JoinHostPort(ip.String(), w.port)}}
	}
	// An error means that the balancer wants other addresses; there are none.
	_ = w.cc.UpdateState(resolver.State{Endpoints: endpoints})
}

func (w *watch) lookup(ctx context.Context) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(w.host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := w.opts.Lookup(ctx, w.host)
	if err != nil {
		return nil, err
	}
	out := make([]netip.Addr, 0, len(found))
	for _, ip := range found {
		out = append(out, ip.Unmap())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	out = slices.Compact(out)
	if len(out) == 0 {
		return nil, errNoAddress
	}
	return out, nil
}

// lookupTimeout leaves time for the second try of the system's resolver.
const lookupTimeout = 6 * time.Second

var errNoAddress = errors.New("name has no address")

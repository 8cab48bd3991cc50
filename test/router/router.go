// Package router is a small HTTP reverse proxy in front of functions that knows
// the contract and nothing else: GetInstance for each request, Heartbeat while
// functions are used, ReleaseInstance after a oneshot. It shows that any such
// router works against the controllers, and reads none of the fields that are
// beyond the contract.
package router

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const (
	functionHeader = "X-Skipper-Function"
	// maxRoundTrips bounds how many instances one request is sent to.
	maxRoundTrips = 6
	// idleIntervals after its last request a function is no longer reported.
	idleIntervals  = 3
	releaseTimeout = 10 * time.Second
)

// Config of a Router; all fields are required.
type Config struct {
	Controller skipperpb.ControllerServiceClient
	// IP is the router's name in heartbeats.
	IP        string
	Transport http.RoundTripper
	// HoldTimeout bounds the wait for an instance, HeartbeatInterval is the
	// time between two heartbeats.
	HoldTimeout, HeartbeatInterval time.Duration
}

// Router is an http.Handler. Safe for concurrent use.
type Router struct {
	cfg   Config
	proxy *httputil.ReverseProxy

	mu    sync.Mutex
	usage map[fn.Key]*usage // guarded by mu
}

// usage is what a heartbeat says of a function.
type usage struct {
	function *skipperpb.Function
	inFlight uint32
	idle     int // intervals without a request
}

// New returns a Router; Run sends its heartbeats.
func New(cfg Config) *Router {
	r := &Router{cfg: cfg, usage: map[fn.Key]*usage{}}
	r.proxy = &httputil.ReverseProxy{
		Transport: r, ErrorHandler: answerError,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetXForwarded()
			p.Out.URL.Scheme, p.Out.Host = "http", p.In.Host
			p.Out.Header.Del(functionHeader)
		},
	}
	return r
}

type functionKey struct{}

// ServeHTTP routes the request by its header.
func (r *Router) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	f, err := fn.Parse([]byte(in.Header.Get(functionHeader)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.began(f)
	defer r.ended(f)
	r.proxy.ServeHTTP(w, in.WithContext(context.WithValue(in.Context(), functionKey{}, f)))
}

// RoundTrip implements http.RoundTripper for the proxy: it sends the request to
// an instance, and to another one where that takes no connection.
func (r *Router) RoundTrip(out *http.Request) (*http.Response, error) {
	f, ok := out.Context().Value(functionKey{}).(*skipperpb.Function)
	if !ok {
		return nil, errors.New("request without a function")
	}
	var failed []string
	body := out.Body
	for {
		i, err := r.instance(out.Context(), f, failed)
		if err != nil {
			return nil, err
		}
		if body != nil {
			out.Body = io.NopCloser(body) // the transport closes it even when nothing was sent
		}
		out.URL.Host = i.GetAddr()
		answer, err := r.cfg.Transport.RoundTrip(out)
		if err != nil {
			r.release(out.Context(), f, i)
			if failed = append(failed, i.GetName()); !untouched(err) || len(failed) >= maxRoundTrips {
				return nil, err
			}
			continue
		}
		ctx := out.Context()
		answer.Body = &watchedBody{answer.Body, sync.OnceFunc(func() { r.release(ctx, f, i) })}
		return answer, nil
	}
}

func (r *Router) instance(ctx context.Context, f *skipperpb.Function, exclude []string) (*skipperpb.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.HoldTimeout)
	defer cancel()
	answer, err := r.cfg.Controller.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f, ExcludeInstanceNames: slices.Clone(exclude)})
	return answer.GetInstance(), err
}

// untouched tells whether an error means that no instance has seen the request.
func untouched(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// release gives a oneshot's pod back, also when its client has left; others are
// kept.
func (r *Router) release(ctx context.Context, f *skipperpb.Function, i *skipperpb.Instance) {
	if !f.GetOneshot() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	// A pod that cannot be released is deleted by the controller's own means.
	_, _ = r.cfg.Controller.ReleaseInstance(ctx, &skipperpb.ReleaseInstanceRequest{Instance: &skipperpb.Instance{
		Function: f, Name: i.GetName(), Addr: i.GetAddr(), ReplicaSet: i.GetReplicaSet(),
	}})
}

// watchedBody tells when the answer has been read to its end, or given up.
type watchedBody struct {
	io.ReadCloser
	closed func()
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

func answerError(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusServiceUnavailable
	switch status.Code(err) {
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.ResourceExhausted:
		code = http.StatusTooManyRequests
	}
	http.Error(w, err.Error(), code)
}

func (r *Router) began(f *skipperpb.Function) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.usage[fn.KeyOf(f)]
	if u == nil {
		u = &usage{}
		r.usage[fn.KeyOf(f)] = u
	}
	u.function, u.idle = f, 0
	u.inFlight++
}

func (r *Router) ended(f *skipperpb.Function) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage[fn.KeyOf(f)].inFlight--
}

// Run sends heartbeats until the context ends.
func (r *Router) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.HeartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if beats := r.report(now); len(beats) > 0 {
				// The next one says it again.
				_, _ = r.cfg.Controller.Heartbeat(ctx, &skipperpb.HeartbeatRequest{RouterIp: r.cfg.IP, Heartbeats: beats})
			}
		}
	}
}

// report is what is in use; functions that have been idle for long drop out.
func (r *Router) report(now time.Time) []*skipperpb.Heartbeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	var beats []*skipperpb.Heartbeat
	for k, u := range r.usage {
		if u.inFlight > 0 {
			u.idle = 0
		} else if u.idle++; u.idle > idleIntervals {
			delete(r.usage, k)
			continue
		}
		beats = append(beats, &skipperpb.Heartbeat{Function: u.function, Timestamp: timestamppb.New(now), InFlightRequests: u.inFlight})
	}
	return beats
}

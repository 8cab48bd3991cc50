// Package release gives the pods of oneshots back to the controller, which
// deletes them. It runs beside the streams, with contexts of its own: the end of
// a request must not end the release. What cannot be released is left to the
// controller's safety net.
package release

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
)

const (
	// room for instances that wait to be released; more than a controller that
	// comes back within a minute leaves behind.
	room = 10_000
	// workers that call the controller at the same time.
	workers = 16
	// callTimeout bounds one call, giveUp all calls for one instance.
	callTimeout = 5 * time.Second
	giveUp      = 2 * time.Minute
)

// Client is the part of the controller's service that is called.
type Client interface {
	ReleaseInstance(context.Context, *skipperpb.ReleaseInstanceRequest, ...grpc.CallOption) (*skipperpb.ReleaseInstanceResponse, error)
}

// Observer is told what became of each instance.
type Observer interface {
	Released()
	GivenUp()
	Dropped()
}

// Releaser releases instances. Safe for concurrent use.
type Releaser struct {
	client   Client
	observer Observer
	log      *zap.Logger

	ctx     context.Context //nolint:containedctx // lifetime of the workers, ended by Close
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu     sync.Mutex
	closed bool
	queue  chan *skipperpb.Instance
}

// Start returns a releaser with its workers running; Close it.
func Start(c Client, o Observer, log *zap.Logger) *Releaser {
	ctx, stop := context.WithCancel(context.Background())
	r := &Releaser{client: c, observer: o, log: log, ctx: ctx, stop: stop, queue: make(chan *skipperpb.Instance, room)}
	for range workers {
		r.workers.Go(r.work)
	}
	return r
}

// Add asks for i to be released. It never blocks: where there is no room, or
// after Close, the instance is left to the controller's safety net.
func (r *Releaser) Add(i *skipperpb.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.observer.Dropped()
		return
	}
	select {
	case r.queue <- i:
	default:
		r.observer.Dropped()
		r.log.Warn("too many instances wait to be released", zap.String("instance", i.GetName()), zap.Int("room", room))
	}
}

// Close releases what waits, until ctx ends, and stops the workers.
func (r *Releaser) Close(ctx context.Context) {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	r.mu.Unlock()
	unhook := context.AfterFunc(ctx, r.stop)
	defer unhook()
	r.workers.Wait()
	r.stop()
}

func (r *Releaser) work() {
	for i := range r.queue {
		r.release(i)
	}
}

func (r *Releaser) release(i *skipperpb.Instance) {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(10*time.Second), backoff.WithMaxElapsedTime(giveUp))
	err := backoff.Retry(func() error { return r.call(i) }, backoff.WithContext(pause, r.ctx))
	if err != nil {
		r.observer.GivenUp()
		r.log.Warn("oneshot instance not released, the controller will find it", zap.String("instance", i.GetName()), zap.Error(err))
		return
	}
	r.observer.Released()
}

func (r *Releaser) call(i *skipperpb.Instance) error {
	ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
	defer cancel()
	_, err := r.client.ReleaseInstance(ctx, &skipperpb.ReleaseInstanceRequest{Instance: i})
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return backoff.Permanent(err)
	}
	return err
}

package client

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// receiver reads a stream on a goroutine of its own, because reading blocks.
// It ends when the stream does.
type receiver struct {
	ready     chan struct{} // closed with the response headers
	responses chan *discoveryv3.DeltaDiscoveryResponse
	failed    chan error // size 1: the reason for the end
	done      chan struct{}
}

func startReceiver(ctx context.Context, g stream) *receiver {
	r := &receiver{
		ready:     make(chan struct{}),
		responses: make(chan *discoveryv3.DeltaDiscoveryResponse),
		failed:    make(chan error, 1),
		done:      make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		r.failed <- r.run(ctx, g)
	}()
	return r
}

func (r *receiver) run(ctx context.Context, g stream) error {
	if h, err := g.Header(); err != nil {
		return err
	} else if h != nil { // nil is a stream that ended without any
		close(r.ready)
	}
	for {
		m, err := g.Recv()
		if err != nil {
			return err
		}
		select {
		case r.responses <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait returns when the goroutine has ended; the stream's context must be
// cancelled first.
func (r *receiver) wait() { <-r.done }

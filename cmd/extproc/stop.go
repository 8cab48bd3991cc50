package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"skipper/extproc/heartbeat"
)

// farewell bounds each of the last calls to the controller.
const farewell = 2 * time.Second

// linger is how long answers may take to leave before connections are closed.
const linger = 200 * time.Millisecond

// stopStreams ends the streams in order: Envoy is told to connect anew, which
// leads it to the next process on the same socket; requests that wait may still
// get their instance, and running ones may end, until the shutdown timeout. Then
// the connections are closed: Envoy goes on with what it runs on its own. ctx must
// outlive the signal to stop.
func (p *process) stopStreams(ctx context.Context) {
	p.ready.stop()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.shutdownTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.grpc.GracefulStop()
	}()
	p.streams.Drain(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		p.cut(ended)
	}
	p.streams.Wait()
}

// cut closes the connections, a moment after the last refusals were given.
func (p *process) cut(ended <-chan struct{}) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		p.grpc.Stop()
		<-ended
	}
}

// stopBack ends what the streams needed; leases of requests that still run are
// left to the controllers.
func (p *process) stopBack(ctx context.Context) {
	p.hall.Close()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		p.flush(ctx)
	}()
	defer func() { <-flushed }()
	last, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	p.releaser.Close(last)
	bye, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	heartbeat.Goodbye(bye, p.beats)
}

// flush sends the last spans, all of which have ended.
func (p *process) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(farewell, p.cfg.shutdownTimeout))
	defer cancel()
	if err := p.tracing.Close(ctx); err != nil {
		p.log.Warn("spans are lost", zap.Error(err))
	}
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

package loads

import (
	"errors"
	"io"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// StreamLoadStats takes the reports of one Envoy until one of the two ends the
// stream. A message that cannot be taken ends it with what is wrong.
func (s *Server) StreamLoadStats(g loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	st, err := s.join(g.Context())
	if err != nil {
		return err
	}
	defer s.leave(st)
	// Receiving cannot be interrupted but by our return, which cancels the
	// stream's context; Close waits for it.
	received := make(chan error, 1)
	s.running.Go(func() {
		err := s.receive(st, g)
		s.end(st, err)
		received <- err
	})
	return s.supervise(st, received)
}

// supervise returns the reason for the end of the stream.
func (s *Server) supervise(st *stream, received <-chan error) error {
	silence := time.NewTimer(s.opts.SilentAfter)
	defer silence.Stop()
	for {
		select {
		case err := <-received:
			return err
		case err := <-st.closed:
			return err
		case <-st.beat:
			silence.Reset(s.opts.SilentAfter)
		case <-silence.C:
			s.metrics.refused.WithLabelValues(refusedSilent).Inc()
			return status.Errorf(codes.Aborted, "no load report for %s: connect again", s.opts.SilentAfter)
		}
	}
}

// receive takes messages until the stream ends; an orderly end is nil.
func (s *Server) receive(st *stream, g loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	for {
		r, err := g.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		select {
		case st.beat <- struct{}{}:
		default: // it will be seen
		}
		hello := st.Node == ""
		if err := s.take(st, r, now); err != nil {
			s.metrics.refused.WithLabelValues(refusedInvalid).Inc()
			return err
		}
		if hello {
			if err := g.Send(request()); err != nil {
				return err
			}
		}
	}
}

// request asks for all there is: Envoy goes on by it for the whole stream.
func request() *loadstatsv3.LoadStatsResponse {
	return &loadstatsv3.LoadStatsResponse{
		SendAllClusters: true, ReportEndpointGranularity: true, LoadReportingInterval: durationpb.New(Interval),
	}
}

// take hands a message's report, if it is one, to the sink.
func (s *Server) take(st *stream, r *loadstatsv3.LoadStatsRequest, now time.Time) error {
	if err := st.identify(r.GetNode().GetId()); err != nil {
		return err
	}
	if !isReport(r) {
		return nil
	}
	busy, err := s.names.busy(r)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if !st.reported {
		st.reported = true
		s.opts.Logger.Info("Envoy reports its load", zap.String("node", st.Node), zap.Uint64("stream", st.ID), zap.Int("busy", len(busy)))
	}
	s.metrics.reports.Inc()
	s.opts.Sink.Reported(st.Stream, now, busy)
	return nil
}

// identify takes the node id from the first message; later ones may repeat it.
func (st *stream) identify(id string) error {
	switch {
	case len(id) > maxNodeID:
		return status.Errorf(codes.InvalidArgument, "node id has %d bytes, at most %d are taken: give Envoy a shorter --service-node", len(id), maxNodeID)
	case st.Node == "" && id == "":
		return status.Error(codes.InvalidArgument, "the first message names no node: give Envoy a --service-node")
	case st.Node == "":
		st.Node = id
	case id != "" && id != st.Node:
		return status.Errorf(codes.InvalidArgument, "node id changed from %q to %q on one stream: open another", st.Node, id)
	}
	return nil
}

func (s *Server) end(st *stream, err error) {
	if !st.reported {
		return
	}
	s.opts.Sink.Ended(st.Stream)
	s.opts.Logger.Info("load reports of an Envoy end: its last one counts until it is heard again, here or elsewhere",
		zap.String("node", st.Node), zap.Uint64("stream", st.ID), zap.Error(err))
}

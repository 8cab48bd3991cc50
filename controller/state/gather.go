package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const (
	// askFor is how long other replicas may take to answer.
	askFor = 2 * time.Second
	// atOnce bounds the answers that are put together at a time, each of which
	// may hold the whole cluster.
	atOnce = 2
	// partMost bounds what is taken from one replica, in bytes: four times what
	// 10,000 functions with 50,000 instances need.
	partMost = 128 << 20
	// chunkMost keeps a message far below what replicas take, in bytes.
	chunkMost = 1 << 20
)

// Gatherer answers for the whole cluster, and other Gatherers for this
// replica. Safe for concurrent use.
type Gatherer struct {
	src Sources
	// A token for each answer that is put together, atOnce of each kind: those for
	// the cluster wait for other replicas' reports, which must not wait for them.
	answers, reports chan struct{}
}

// New returns a Gatherer.
func New(s Sources) *Gatherer {
	return &Gatherer{src: s, answers: make(chan struct{}, atOnce), reports: make(chan struct{}, atOnce)}
}

// ClusterState is the view over all replicas. Its error is the context's, where
// that ended before the question's turn. Functions and heartbeats in the answer
// are shared: it must not be changed.
func (g *Gatherer) ClusterState(ctx context.Context, q *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
	if err := enter(ctx, g.answers); err != nil {
		return nil, err
	}
	defer leave(g.answers)
	parts, silent := g.ask(ctx, q)
	now := time.Now()
	parts[g.src.Self] = g.part(q, now)
	ring := g.src.Ring.Current()
	out := merge(parts, func(k fn.Key) string {
		owner, _ := ring.Owner(k.Hash()) // empty where the ring is
		return owner
	})
	g.addSilent(out, silent)
	g.addCommon(out, q, now)
	order(out)
	return out, nil
}

func enter(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for others who ask for the cluster's state: %w", ctx.Err())
	}
}

func leave(places chan struct{}) { <-places }

// ask asks all other members at the same time.
func (g *Gatherer) ask(ctx context.Context, q *skipperpb.GetClusterStateRequest) (parts map[string]*skipperpb.ClusterState, silent map[string]error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	parts, silent = map[string]*skipperpb.ClusterState{}, map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, ip := range g.src.Peers.Members() {
		all.Go(func() {
			part, err := g.askOne(ctx, ip, q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent[ip] = err
			} else {
				parts[ip] = part
			}
		})
	}
	all.Wait()
	return parts, silent
}

func (g *Gatherer) askOne(ctx context.Context, ip string, q *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
	part := &skipperpb.ClusterState{}
	err := g.src.Peers.Call(ctx, ip, func(ctx context.Context, c skipperpb.ReplicaServiceClient) error {
		stream, err := c.ReportState(ctx, &skipperpb.ReportStateRequest{Question: q})
		if err != nil {
			return err
		}
		return receive(stream, part)
	})
	if err == nil && (len(part.GetReplicas()) != 1 || part.GetReplicas()[0].GetIp() != ip) {
		err = fmt.Errorf("another controller answers at %s: is --pod-ip of both right", ip)
	}
	return part, err
}

// receive joins the messages of an answer.
func receive(stream grpc.ServerStreamingClient[skipperpb.ReportStateResponse], into *skipperpb.ClusterState) error {
	for size := 0; ; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if size += proto.Size(m); size > partMost {
			return fmt.Errorf("the answer is larger than %d bytes", partMost)
		}
		join(into, m.GetPart())
	}
}

// addSilent names the replicas that have not answered, and those that were not
// asked because they are not on the ring.
func (g *Gatherer) addSilent(s *skipperpb.ClusterState, silent map[string]error) {
	named := map[string]bool{}
	for _, r := range s.GetReplicas() {
		named[r.GetIp()] = true
	}
	for ip, err := range silent {
		named[ip], s.Partial = true, true
		s.Replicas = append(s.Replicas, &skipperpb.ReplicaState{Ip: ip, UnreachableReason: why(err)})
	}
	for _, r := range g.src.Replicas() {
		if named[r.IP] {
			continue
		}
		named[r.IP] = true
		reason := "not asked: it is not ready yet"
		if r.Terminating {
			reason = "not asked: it is stopping"
		}
		s.Replicas = append(s.Replicas, &skipperpb.ReplicaState{Ip: r.IP, UnreachableReason: reason})
	}
}

// why is the error in an operator's words.
func why(err error) string {
	switch {
	case status.Code(err) == codes.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", askFor)
	case status.Code(err) == codes.Unimplemented:
		return "its version does not tell its state yet"
	case status.Code(err) == codes.Unavailable:
		return "cannot be reached: " + status.Convert(err).Message()
	}
	return err.Error()
}

// ReportState answers another replica.
func (g *Gatherer) ReportState(r *skipperpb.ReportStateRequest, to grpc.ServerStreamingServer[skipperpb.ReportStateResponse]) error {
	if enter(to.Context(), g.reports) != nil {
		return status.FromContextError(to.Context().Err()).Err()
	}
	defer leave(g.reports)
	for _, part := range split(g.part(r.GetQuestion(), time.Now()), chunkMost) {
		if err := to.Send(&skipperpb.ReportStateResponse{Part: part}); err != nil {
			return err
		}
	}
	return nil
}

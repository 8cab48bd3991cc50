package state

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/controller/ring"
	skipperpb "skipper/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// crowd are other replicas, each with the messages of its answer. One without
// messages does not answer at all.
type crowd map[string][]*skipperpb.ClusterState

func (c crowd) Members() []string { return slices.Sorted(maps.Keys(c)) }

func (c crowd) Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error {
	if ip == "10.0.0.5" {
		return status.Error(codes.Unimplemented, "unknown method")
	}
	return do(ctx, member{parts: c[ip]})
}

type member struct {
	skipperpb.ReplicaServiceClient
	parts []*skipperpb.ClusterState
}

func (m member) ReportState(ctx context.Context, _ *skipperpb.ReportStateRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[skipperpb.ReportStateResponse], error) {
	if m.parts == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &answer{parts: m.parts}, nil
}

type answer struct {
	grpc.ClientStream
	parts []*skipperpb.ClusterState
}

func (a *answer) Recv() (*skipperpb.ReportStateResponse, error) {
	if len(a.parts) == 0 {
		return nil, io.EOF
	}
	next := a.parts[0]
	a.parts = a.parts[1:]
	return &skipperpb.ReportStateResponse{Part: next}, nil
}

func TestOthersAreAskedWithinTheDeadlineAndSilenceIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Sources{Peers: crowd{
			"10.0.0.2": {{Replicas: []*skipperpb.ReplicaState{{Ip: "10.0.0.2"}}}, {Supervisors: []*skipperpb.SupervisorState{supervisor("a", "10.0.0.2")}}},
			"10.0.0.3": nil,
			"10.0.0.4": {{Replicas: []*skipperpb.ReplicaState{{Ip: "10.0.0.2"}}}},
			"10.0.0.5": {},
		}, Replicas: func() []ring.Replica {
			return []ring.Replica{{IP: "10.0.0.2", Ready: true}, {IP: "10.0.0.6"}, {IP: "10.0.0.7", Ready: true, Terminating: true}}
		}})
		start := time.Now()
		parts, silent := g.ask(t.Context(), nil)
		if took := time.Since(start); took != askFor {
			t.Errorf("took %s, want %s: all are asked at the same time", took, askFor)
		}
		if len(parts) != 1 || len(parts["10.0.0.2"].GetSupervisors()) != 1 {
			t.Errorf("parts %v, want that of 10.0.0.2 only", parts)
		}
		s := &skipperpb.ClusterState{Replicas: parts["10.0.0.2"].GetReplicas()}
		g.addSilent(s, silent)
		order(s)
		var said []string
		for _, r := range s.GetReplicas() {
			said = append(said, r.GetIp()+" "+r.GetUnreachableReason())
		}
		want := []string{
			"10.0.0.2 ", "10.0.0.3 no answer within 2s",
			"10.0.0.4 another controller answers at 10.0.0.4: is --pod-ip of both right",
			"10.0.0.5 its version does not tell its state yet",
			"10.0.0.6 not asked: it is not ready yet", "10.0.0.7 not asked: it is stopping",
		}
		if !slices.Equal(said, want) || !s.GetPartial() {
			t.Errorf("partial %v, replicas:\n%s", s.GetPartial(), strings.Join(said, "\n"))
		}
	})
}

// Two replicas that are asked at once do not wait for each other's answers.
func TestReportsHavePlacesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Sources{})
		for range atOnce {
			if err := enter(t.Context(), g.answers); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := enter(ctx, g.answers); err == nil {
			t.Error("more answers are put together at once than there are places")
		}
		if err := enter(t.Context(), g.reports); err != nil {
			t.Error(err)
		}
	})
}

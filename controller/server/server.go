// Package server answers skipper.ControllerService: it checks what callers
// send, asks the parts that know, and turns what they say into gRPC statuses
// with a reason. It decides nothing itself and keeps no state.
//
// A call that needs the responsible replica goes to the Forwarder first, which
// has another replica answer it or says that it is to be executed here. A
// function that has an instance is answered from what this replica sees.
package server

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/usage"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
)

// pods is what is read of the cluster: *pool.View.
type pods interface {
	Known(namespace, deployment string) bool
	Instances(key fn.Key) []pool.Pod
	Pod(uid string) (pool.Pod, bool)
	Named(namespace, name string) (pool.Pod, bool)
}

// acquirer finds or makes an instance: *acquire.Acquirer.
type acquirer interface {
	GetOrAcquire(ctx context.Context, f *skipperpb.Function, exclude []string) (pool.Pod, error)
}

// retirer ends instances: *retire.Retirer. A pod that is gone is a success.
type retirer interface {
	Drain(ctx context.Context, p pool.Pod, reason string) error
	Delete(ctx context.Context, p pool.Pod, reason string) error
	// DeleteSoon also takes pods that this replica has not seen yet.
	DeleteSoon(p pool.Pod, reason string)
}

// forwarder takes calls to the responsible replica: *forward.Forwarder.
type forwarder interface {
	// GetInstance and Scale return false where the call is to be executed here.
	GetInstance(ctx context.Context, r *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, bool, error)
	Scale(ctx context.Context, r *skipperpb.ScaleRequest) (*skipperpb.ScaleResponse, bool, error)
	// Heartbeat tells the other replicas, without waiting for them.
	Heartbeat(r *skipperpb.HeartbeatRequest)
}

// supervisors scale functions: *supervise.Supervisors.
type supervisors interface {
	Touch(f *skipperpb.Function)
	Heard(f *skipperpb.Function)
	Scale(ctx context.Context, f *skipperpb.Function, n int, why string) ([]pool.Pod, error)
}

// meter is what instances use: *usage.Reader.
type meter interface {
	Of(namespace, pod string, now time.Time) (usage.Usage, bool)
}

// Options are the server's settings.
type Options struct {
	// Namespaces that are managed (--function-namespaces).
	Namespaces []string
	// MaxInstancesLimit is the most that scale.max_instances may be; 0: no limit.
	MaxInstancesLimit uint32
	// Shards of each cluster family, a power of two, as xDS has them.
	Shards int
}

// Deps are what the server asks; all fields are required but Usage, which may
// be nil where nothing is known, and State, without which GetClusterState is
// not served.
type Deps struct {
	Pods        pods
	Heartbeats  *heartbeat.Store
	Acquirer    acquirer
	Retirer     retirer
	Supervisors supervisors
	Forwarder   forwarder
	Usage       meter
	State       gatherer
	// Live reads a pod from the API server, and makes Pods show what it read if
	// they know the pod; false: there is none. Other replicas' claims are found
	// so before the informer shows them.
	Live       func(ctx context.Context, namespace, name string) (pool.Pod, bool, error)
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// Server implements skipperpb.ControllerServiceServer. Safe for concurrent use.
type Server struct {
	skipperpb.UnimplementedControllerServiceServer
	Deps
	opts       Options
	namespaces map[string]bool
	heard      *prometheus.CounterVec
}

// New makes a server.
func New(o Options, d Deps) *Server {
	s := &Server{Deps: d, opts: o, namespaces: map[string]bool{}}
	for _, ns := range o.Namespaces {
		s.namespaces[ns] = true
	}
	s.heard = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skipper_controller_heartbeats_total",
		Help: "Heartbeats received, each function of a message counted, by what became of them.",
	}, []string{"outcome"})
	s.count(heartbeat.Outcome{}, 0) // every outcome stands at 0 from the start
	d.Registerer.MustRegister(s.heard)
	return s
}

// check says why f cannot be served at all, as a status.
func (s *Server) check(f *skipperpb.Function) error {
	if err := fn.Validate(f); err != nil {
		return reason.Error(codes.InvalidArgument, reason.HeaderInvalid, err.Error())
	}
	if err := s.checkNamespace(f.GetNamespace()); err != nil {
		return err
	}
	if most := s.opts.MaxInstancesLimit; most > 0 && f.GetScale().GetMaxInstances() > most {
		return reason.Permanent(codes.ResourceExhausted, reason.LimitReached,
			fmt.Sprintf("scale.max_instances %d is above the limit of %d: lower it, or raise --max-instances-limit of the controller", f.GetScale().GetMaxInstances(), most))
	}
	return nil
}

func (s *Server) checkNamespace(namespace string) error {
	if !s.namespaces[namespace] {
		return reason.Error(codes.NotFound, reason.NamespaceNotManaged,
			fmt.Sprintf("namespace %.63q is not managed: add it to --function-namespaces of the controller", namespace))
	}
	return nil
}

// checkDeployment is for what is executed here: before a replica is on the ring
// it has not seen everything.
func (s *Server) checkDeployment(f *skipperpb.Function) error {
	if !s.Pods.Known(f.GetNamespace(), f.GetDeployment()) {
		return deploymentNotFound(fmt.Sprintf(
			"no pod and no ReplicaSet of deployment %q was ever seen in namespace %q: create it, with label %s: %s on its pods",
			f.GetDeployment(), f.GetNamespace(), pool.LabelDeployment, f.GetDeployment()))
	}
	return nil
}

// margin is kept of the caller's time, so that the cause arrives before the
// caller's own deadline says nothing but that it has passed.
const (
	marginShare = 10
	marginMost  = 250 * time.Millisecond
	longest     = 55 * time.Second // below the grace of an ageing connection
)

// within shortens the caller's time by the margin and bounds it.
func within(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	end := now.Add(longest)
	if deadline, ok := ctx.Deadline(); ok {
		rest := deadline.Sub(now)
		if d := deadline.Add(-min(rest/marginShare, marginMost)); d.Before(end) {
			end = d
		}
	}
	return context.WithDeadline(ctx, end)
}

package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// maxExcluded bounds exclude_instance_names; a router tries at most 6 times.
const maxExcluded = 100

// GetInstance answers with an instance that takes requests.
func (s *Server) GetInstance(ctx context.Context, r *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	f := r.GetFunction()
	if err := s.check(f); err != nil {
		return nil, err
	}
	if n := len(r.GetExcludeInstanceNames()); n > maxExcluded {
		return nil, status.Errorf(codes.InvalidArgument, "exclude_instance_names has %d names, at most %d are taken", n, maxExcluded)
	}
	ctx, cancel := within(ctx, time.Now())
	defer cancel()
	if err := s.place(ctx, f); err != nil {
		return nil, statusOf(err)
	}
	if err := s.checkDeployment(f); err != nil {
		return nil, err
	}
	s.Supervisors.Touch(f)
	p, err := s.Acquirer.GetOrAcquire(ctx, f, r.GetExcludeInstanceNames())
	if err != nil {
		return nil, statusOf(err)
	}
	return &skipperpb.GetInstanceResponse{Instance: pool.Instance(p, s.opts.Shards)}, nil
}

// Scale brings the function to the given number of instances, within its
// bounds; see package supervise for what is remembered of it.
func (s *Server) Scale(ctx context.Context, r *skipperpb.ScaleRequest) (*skipperpb.ScaleResponse, error) {
	f := r.GetFunction()
	if err := s.check(f); err != nil {
		return nil, err
	}
	if f.GetOneshot() {
		return nil, status.Error(codes.InvalidArgument, "a oneshot function has one pod per request and is not scaled")
	}
	ctx, cancel := within(ctx, time.Now())
	defer cancel()
	if err := s.place(ctx, f); err != nil {
		return nil, statusOf(err)
	}
	if err := s.checkDeployment(f); err != nil {
		return nil, err
	}
	desired := min(r.GetDesiredInstances(), f.GetScale().GetMaxInstances())
	pods, err := s.Supervisors.Scale(ctx, f, int(desired), r.GetReason().String())
	if err != nil {
		return nil, statusOf(err)
	}
	return &skipperpb.ScaleResponse{Instances: s.instances(pods)}, nil
}

func (s *Server) instances(pods []pool.Pod) []*skipperpb.Instance {
	out := make([]*skipperpb.Instance, 0, len(pods))
	for _, p := range pods {
		out = append(out, pool.Instance(p, s.opts.Shards))
	}
	return out
}

// ReleaseInstance deletes a oneshot's pod and drains any other. A pod that is
// gone is a success; one that is not the named function's is never touched.
func (s *Server) ReleaseInstance(ctx context.Context, r *skipperpb.ReleaseInstanceRequest) (*skipperpb.ReleaseInstanceResponse, error) {
	i := r.GetInstance()
	if err := s.checkRelease(i); err != nil {
		return nil, err
	}
	p, ok := s.named(i)
	if !ok {
		return &skipperpb.ReleaseInstanceResponse{}, nil
	}
	if p.Key != fn.KeyOf(i.GetFunction()) {
		return nil, status.Errorf(codes.FailedPrecondition, "pod %s/%s is not the function's: nothing was done", p.Namespace, p.Name)
	}
	if err := s.release(ctx, p); err != nil {
		return nil, statusOf(err)
	}
	return &skipperpb.ReleaseInstanceResponse{}, nil
}

func (s *Server) checkRelease(i *skipperpb.Instance) error {
	f := i.GetFunction()
	if f.GetDeployment() == "" || f.GetTenant() == "" || (i.GetName() == "" && i.GetUid() == "") {
		return status.Error(codes.InvalidArgument, "instance needs its function's namespace, deployment and tenant, and its name or uid")
	}
	return s.checkNamespace(f.GetNamespace())
}

// named finds the pod by UID, or by name where the caller knows no UID. A pod
// that has only the name in common is another one, so the one meant is gone.
func (s *Server) named(i *skipperpb.Instance) (pool.Pod, bool) {
	if i.GetUid() == "" {
		return s.Pods.Named(i.GetFunction().GetNamespace(), i.GetName())
	}
	p, ok := s.Pods.Pod(i.GetUid())
	return p, ok && (i.GetName() == "" || i.GetName() == p.Name)
}

func (s *Server) release(ctx context.Context, p pool.Pod) error {
	if p.Key.Oneshot {
		if err := s.Retirer.Delete(ctx, p, "released by its router"); err != nil {
			return fmt.Errorf("release instance %s/%s: %w", p.Namespace, p.Name, err)
		}
		return nil
	}
	if err := s.Retirer.Drain(ctx, p, "released by a router"); err != nil {
		return fmt.Errorf("release instance %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	bounded, cancel := within(ctx, time.Now())
	defer cancel()
	if !s.warm(r) {
		if answer, done, err := s.Forwarder.GetInstance(bounded, r); done || err != nil {
			return answer, statusOf(ctx, err)
		}
	}
	if err := s.checkDeployment(f); err != nil {
		return nil, err
	}
	s.Supervisors.Touch(f)
	p, err := s.Acquirer.GetOrAcquire(bounded, f, r.GetExcludeInstanceNames())
	if err != nil {
		return nil, statusOf(ctx, err)
	}
	return &skipperpb.GetInstanceResponse{Instance: s.instance(p, time.Now())}, nil
}

// warm tells whether this replica sees an instance to answer with; nobody else
// needs to be asked then.
func (s *Server) warm(r *skipperpb.GetInstanceRequest) bool {
	if r.GetFunction().GetOneshot() {
		return false
	}
	return slices.ContainsFunc(s.Pods.Instances(fn.KeyOf(r.GetFunction())), func(p pool.Pod) bool {
		return p.Routable() && !slices.Contains(r.GetExcludeInstanceNames(), p.Name)
	})
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
	bounded, cancel := within(ctx, time.Now())
	defer cancel()
	if answer, done, err := s.Forwarder.Scale(bounded, r); done || err != nil {
		return answer, statusOf(ctx, err)
	}
	if err := s.checkDeployment(f); err != nil {
		return nil, err
	}
	desired := min(r.GetDesiredInstances(), f.GetScale().GetMaxInstances())
	pods, err := s.Supervisors.Scale(bounded, f, int(desired), wordOf(r.GetReason()))
	if err != nil {
		return nil, statusOf(ctx, err)
	}
	return &skipperpb.ScaleResponse{Instances: s.instances(pods)}, nil
}

// wordOf is a caller's reason as people read it.
func wordOf(r skipperpb.ScaleReason) string {
	return cmp.Or(skipperpb.Words(r), "no stated reason")
}

func (s *Server) instances(pods []pool.Pod) []*skipperpb.Instance {
	out, now := make([]*skipperpb.Instance, 0, len(pods)), time.Now()
	for _, p := range pods {
		out = append(out, s.instance(p, now))
	}
	return out
}

// instance is the pod with what it uses.
func (s *Server) instance(p pool.Pod, now time.Time) *skipperpb.Instance {
	i := pool.Instance(p, s.opts.Shards)
	if s.Usage != nil {
		u, _ := s.Usage.Of(p.Namespace, p.Name, now) // 0 where it is not known
		i.CpuUsageMilli, i.MemoryUsageMib = u.CPUMilli, u.MemoryMiB
	}
	return i
}

// ReleaseInstance deletes a oneshot's pod and drains any other. A pod that is
// gone is a success; one that is not the named function's is never touched.
// Whoever is asked does it, also for a pod that another replica has only just
// claimed.
func (s *Server) ReleaseInstance(ctx context.Context, r *skipperpb.ReleaseInstanceRequest) (*skipperpb.ReleaseInstanceResponse, error) {
	i := r.GetInstance()
	if err := s.checkRelease(i); err != nil {
		return nil, err
	}
	p, ok, err := s.named(ctx, i)
	switch {
	case err != nil:
		return nil, statusOf(ctx, err)
	case !ok:
		return &skipperpb.ReleaseInstanceResponse{}, nil
	case p.Key != fn.KeyOf(i.GetFunction()):
		return nil, status.Errorf(codes.FailedPrecondition, "pod %s/%s is not the function's: nothing was done", p.Namespace, p.Name)
	}
	if err := s.release(ctx, p); err != nil {
		return nil, statusOf(ctx, err)
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

// named finds the pod that is meant; false: it is gone. Where this replica does
// not see it as the function's, the API server is asked.
func (s *Server) named(ctx context.Context, i *skipperpb.Instance) (pool.Pod, bool, error) {
	p, ok := s.seen(i)
	if i.GetName() == "" || ok && p.Key == fn.KeyOf(i.GetFunction()) {
		return p, ok, nil
	}
	p, ok, err := s.Live(ctx, i.GetFunction().GetNamespace(), i.GetName())
	return p, ok && (i.GetUid() == "" || i.GetUid() == p.UID), err
}

// seen finds the pod by UID, or by name where the caller knows no UID. A pod
// that has only the name in common is another one, so the one meant is gone.
func (s *Server) seen(i *skipperpb.Instance) (pool.Pod, bool) {
	if i.GetUid() == "" {
		return s.Pods.Named(i.GetFunction().GetNamespace(), i.GetName())
	}
	p, ok := s.Pods.Pod(i.GetUid())
	return p, ok && (i.GetName() == "" || i.GetName() == p.Name)
}

// errUnseen is for a pod that cannot be drained, because this replica could not
// tell when it is empty.
var errUnseen = status.Error(codes.Unavailable, "this replica has not seen the pod yet: ask again, another replica has")

func (s *Server) release(ctx context.Context, p pool.Pod) error {
	if _, known := s.Pods.Pod(p.UID); !known {
		if !p.Key.Oneshot {
			return errUnseen
		}
		s.Retirer.DeleteSoon(p, "released by its router")
		return nil
	}
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

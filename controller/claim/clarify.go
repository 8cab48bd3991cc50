package claim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/lookup"
	"skipper/controller/pool"
)

// clarify reads what has become of a claim whose answer was lost, until it can be
// read or the context ends: who went on to another pod meanwhile could take one
// more for each answer that is lost. V is the verdict if it stays unclear.
func (c *call) clarify(ctx context.Context, p *pool.Pod, at time.Time, v Verdict) (*corev1.Pod, Verdict) {
	for {
		c.rest(ctx)
		if ctx.Err() != nil {
			return nil, v
		}
		found, err := c.read(ctx, p)
		switch {
		case err != nil:
			continue
		case found == nil:
			return nil, Verdict{Gone, "the pod does not exist any more"}
		case c.claimed(found, at):
			return found, Judge(found, nil)
		}
		return nil, v
	}
}

// claimed says that the pod shows the claim of this call that was made at that time.
func (c *call) claimed(found *corev1.Pod, at time.Time) bool {
	return found.Labels[pool.LabelTenant] == c.function.GetTenant() && found.Annotations[pool.AnnotationAssignedAt] == pool.FormatTime(at)
}

// read is the pod as the API server has it; nil: it is gone.
func (c *call) read(ctx context.Context, p *pool.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	found, err := lookup.Pod(ctx, c.cfg.Pods, p.Namespace, p.Name)
	if found != nil && string(found.UID) != p.UID {
		return nil, nil // another one has its name
	}
	return found, err
}

package acquire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// replacementWait is how long a replacement waits for a pod: it is not urgent,
// and while it waits another function's could be made.
const replacementWait = time.Second

var errUnfit = errors.New("pod is of no use")

// Replace is Acquire for an instance that is to take another's place. It does
// not wait for a pod until there is one, and takes only a pod of a ReplicaSet
// that is active, so that what replaces a stale instance is not stale itself.
func (a *Acquirer) Replace(ctx context.Context, f *skipperpb.Function) (pool.Pod, error) {
	waiting, cancel := context.WithTimeout(ctx, replacementWait)
	defer cancel()
	return a.acquire(waiting, ctx, wish{function: f, refuses: a.outdated, keep: true})
}

// outdated says why the pod is not to replace another.
func (a *Acquirer) outdated(p pool.Pod) string {
	for _, r := range a.cfg.View.ReplicaSets(p.Namespace, p.Deployment) {
		if r.Name == p.ReplicaSet && r.Active() {
			return ""
		}
	}
	return fmt.Sprintf("ReplicaSet %s makes no pods any more", p.ReplicaSet)
}

// Rewrite has the function annotation of an instance say f in the background,
// until it does or the pod is gone. F must be the pod's function but for its
// scale, which the pod itself has no use for.
func (a *Acquirer) Rewrite(p pool.Pod, f *skipperpb.Function) error {
	text := fn.Marshal(f)
	if len(text) > fn.MaxJSONBytes {
		return fmt.Errorf("annotate pod %s/%s: %w", p.Namespace, p.Name, fn.ErrTooLarge)
	}
	patch := pool.AnnotationPatch(p, [2]string{pool.AnnotationFunction, string(text)})
	// The key leaves the pod's ready-at, which may still be waiting, alone.
	a.writes.Add(p.UID+"/function", func(ctx context.Context) error { return a.write(ctx, p, patch) })
	return nil
}

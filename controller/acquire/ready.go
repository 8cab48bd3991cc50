package acquire

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/controller/pool"
)

const (
	// readyWorkers write ready-at at once; each write is one of a cold start's
	// two, so a handful keep up with what the API server takes.
	readyWorkers = 8
	// readyTimeout bounds one such write.
	readyTimeout = 10 * time.Second
)

// writeReadySoon has ready-at written in the background, until it is or the
// pod is gone.
func (a *Acquirer) writeReadySoon(p pool.Pod, at time.Time) {
	patch := readyPatch(p, at)
	a.writes.Add(p.UID, func(ctx context.Context) error { return a.write(ctx, p, patch) })
}

// write patches the pod; one that is gone needs none.
func (a *Acquirer) write(ctx context.Context, p pool.Pod, patch []byte) error {
	if _, known := a.cfg.View.Pod(p.UID); !known {
		return nil
	}
	reply, err := a.cfg.Pods.Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	a.cfg.View.ExpectWritten(pool.FromPod(reply, a.cfg.Functions))
	return nil
}

func readyPatch(p pool.Pod, at time.Time) []byte {
	return pool.AnnotationPatch(p,
		[2]string{pool.AnnotationReadyAt, pool.FormatTime(at)},
		[2]string{pool.AnnotationReadyRestarts, strconv.Itoa(int(p.Restarts))})
}

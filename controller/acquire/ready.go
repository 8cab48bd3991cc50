package acquire

import (
	"context"
	"encoding/json"
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
	a.writes.Add(p.UID, func(ctx context.Context) error { return a.writeReady(ctx, p, patch) })
}

func (a *Acquirer) writeReady(ctx context.Context, p pool.Pod, patch []byte) error {
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

// readyPatch takes effect only on the very pod, and only while it is the tenant's.
func readyPatch(p pool.Pod, at time.Time) []byte {
	ops := []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}{
		{"test", "/metadata/uid", p.UID},
		{"test", "/metadata/labels/skipper~1tenant", p.Tenant},
		{"add", "/metadata/annotations/skipper~1ready-at", pool.FormatTime(at)},
		{"add", "/metadata/annotations/skipper~1ready-restarts", strconv.Itoa(int(p.Restarts))},
	}
	b, err := json.Marshal(ops)
	if err != nil { // strings always encode
		panic(fmt.Sprintf("encode ready-at: %v", err))
	}
	return b
}

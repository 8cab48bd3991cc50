//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logLines of each container are shown after a failure.
const logLines = 60

// dumpLogs writes what Skipper's containers said last. Problems with it are written too: the run has failed already.
func (w *world) dumpLogs(out io.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pods, err := w.kube.CoreV1().Pods(w.system).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(out, "list pods in %s: %v\n", w.system, err)
		return
	}
	for _, p := range pods.Items {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			fmt.Fprintf(out, "--- %s/%s: ready %t, restarts %d\n", p.Name, s.Name, s.Ready, s.RestartCount)
			w.dumpLog(ctx, out, p.Name, s.Name, s.RestartCount > 0)
		}
	}
}

// dumpLog shows the container's predecessor too, where there was one.
func (w *world) dumpLog(ctx context.Context, out io.Writer, pod, container string, restarted bool) {
	lines := int64(logLines)
	versions := []bool{false}
	if restarted {
		versions = []bool{true, false}
	}
	for _, previous := range versions {
		opts := &corev1.PodLogOptions{Container: container, TailLines: &lines, Previous: previous}
		text, err := w.kube.CoreV1().Pods(w.system).GetLogs(pod, opts).DoRaw(ctx)
		if err != nil {
			fmt.Fprintf(out, "read log of %s/%s: %v\n", pod, container, err)
			continue
		}
		fmt.Fprintf(out, "%s\n", text)
	}
}

//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	skipperpb "skipper/proto"
	"skipper/test/hollow"
)

// frozenPatience is longer than a controller takes to call a watch frozen: up to 30 s until it asks, and 150 s.
const frozenPatience = 4 * time.Minute

// frozenStage has the watches of the only controller stand still, connected: after 150 s it says so, ends its xDS
// streams and neither scales nor deletes, while warm functions are served. When the watches move again, so does all
// else. Red: nobody notices, something is deleted on old knowledge, or the streams stay.
func frozenStage(t *testing.T) {
	const idle, released = "2", "3"
	s := newStage(t, 1, stageSettings())
	p := s.newPool(t, 5)
	warm := p.keepWarm(t, 4)
	begun := time.Now()
	s.gate.set(frozen)
	s.waitMetric(t, frozenPatience, "skipper_controller_informer_frozen", "", 1)
	noticed := time.Since(begun)
	for _, kind := range []string{"endpoint", "instances"} {
		s.waitMetric(t, patience, "skipper_controller_xds_subscribers", kind, 0)
	}
	t.Logf("noticed after %s, streams closed after %s", noticed.Round(time.Second), time.Since(begun).Round(time.Second))
	s.wantLogged(t, "watch of function pods is frozen")
	warm.stop(t, idle)
	warm.stop(t, released)
	p.releaseOne(t, p.function(released))
	during(t, 25*time.Second, func() { // longer than the heartbeat timeout
		for tenant, uid := range warm.pods {
			if e, _ := p.pods.entry(uid); e.gone || e.pod.DeletionTimestamp != nil {
				t.Fatalf("the pod of tenant %s was deleted on frozen knowledge:%s", tenant, p.pods)
			}
		}
	})
	s.gate.set(open)
	back := time.Now()
	s.waitMetric(t, patience, "skipper_controller_informer_frozen", "", 0)
	p.waitServed(t, p.function("cold"))
	t.Logf("a first request is served %s after the watch moves again", time.Since(back).Round(time.Second))
	p.waitGone(t, warm.pods[idle])
	p.waitGone(t, warm.pods[released])
	t.Logf("all is done that had to wait %s after it; %d warm requests", time.Since(back).Round(time.Second), warm.stopAll(t))
}

// releaseOne gives the function's instance back, as an operator can.
func (p *pool) releaseOne(t *testing.T, f *skipperpb.Function) {
	t.Helper()
	operator := p.operator(t)
	got, err := operator.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: f})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: got.GetInstance()}); err != nil {
		t.Fatal(err)
	}
}

// wantLogged fails unless the stage's only controller has said this.
func (s *stage) wantLogged(t *testing.T, text string) {
	t.Helper()
	log, err := s.kube.CoreV1().Pods(s.system).GetLogs(s.systemPod(t, controllerName).Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || !strings.Contains(string(log), text) {
		t.Errorf("%q is not in %d bytes of log, %v", text, len(log), err)
	}
}

// metric is a gauge of the stage's only controller, by one of its labels.
func (s *stage) metric(t *testing.T, name string) (map[string]float64, error) {
	t.Helper()
	return hollow.Metric(t.Context(), fmt.Sprintf("http://%s:8080", s.systemPod(t, controllerName).Status.PodIP), name, "type")
}

func (s *stage) waitMetric(t *testing.T, d time.Duration, name, label string, want float64) {
	t.Helper()
	eventuallyFor(t, d, fmt.Sprintf("%s{%s} %v", name, label, want), func() (bool, string) {
		got, err := s.metric(t, name)
		return err == nil && got[label] == want, fmt.Sprint(got, err)
	})
}

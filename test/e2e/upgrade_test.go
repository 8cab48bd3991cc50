//go:build e2e

package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/identity"
)

var changes = flag.Bool("e2e.changes", true, "upgrade and roll back, and replace all keys, under load; it takes four minutes")

// What operators do to an installation that is in use: another release, other keys. Each story has a stage of its own,
// on which all requests, first ones too, must be served meanwhile. One after the other: each replaces all parts several
// times over, for which the node has to start them.
func TestChangesUnderLoad(t *testing.T) {
	if !*changes {
		t.Skip("left out by -e2e.changes=false")
	}
	t.Run("upgrade", func(t *testing.T) {
		old := previousRelease(t)
		t.Run("controllers first", func(t *testing.T) { upgradeStory(t, old, []string{controllerName, gatewayName}) })
		t.Run("gateways first", func(t *testing.T) { upgradeStory(t, old, []string{gatewayName, controllerName}) })
	})
	t.Run("rotation", rotationStory)
}

// upgradeStory takes a stage from the previous release to this one, one Deployment after the other, and back the same
// way turned round. Envoy and its configuration are this release's throughout. Red: one release does not understand
// the other, or they disagree about who is responsible for a function.
func upgradeStory(t *testing.T, old release, order []string) {
	s := newStageOf(t, old, 2, stageSettings())
	s.useService(t)
	now := s.deployedRelease(t)
	u := s.startUse(t)
	if order[0] == controllerName {
		s.wantOneRing(t, now)
	}
	for _, d := range order {
		s.roll(t, d, now)
	}
	u.waitMore(t)
	for i := range order {
		s.roll(t, order[len(order)-1-i], old)
	}
	u.waitMore(t)
	u.stop(t)
}

// useService has the test send its requests to a Service, as clients do, and not to a pod, which is replaced.
func (s *stage) useService(t *testing.T) {
	t.Helper()
	service, err := s.kube.CoreV1().Services(s.system).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: gatewayName},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app.kubernetes.io/name": gatewayName},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.gateway = "http://" + net.JoinHostPort(service.Spec.ClusterIP, "80")
	eventually(t, "the Service of the stage's gateways", func() (bool, string) {
		a := s.get(t.Context(), nil, "/healthz")
		return a.err == nil, a.String()
	})
}

// deployedRelease is what the shared Skipper runs.
func (s *stage) deployedRelease(t *testing.T) release {
	t.Helper()
	r := release{}
	for _, name := range []string{controllerName, gatewayName} {
		d, err := s.kube.AppsV1().Deployments(systemNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name == "controller" || c.Name == "extproc" {
				r[c.Name] = c.Image
			}
		}
	}
	return r
}

// roll gives a Deployment the images of a release, as kubectl set image does, and waits until no pod has another.
func (s *stage) roll(t *testing.T, deployment string, to release) {
	t.Helper()
	name := map[string]string{controllerName: "controller", gatewayName: "extproc"}[deployment]
	patch := mustJSON(t, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []map[string]string{{"name": name, "image": to[name]}},
	}}}})
	s.patchAndWait(t, deployment, patch)
	for _, pod := range s.systemPods(t, deployment) {
		if image := imageOf(&pod.Spec, name); image != to[name] {
			t.Errorf("pod %s has image %q, want %q", pod.Name, image, to[name])
		}
	}
}

func (s *stage) patchAndWait(t *testing.T, deployment string, patch []byte) {
	t.Helper()
	begun := time.Now()
	_, err := s.kube.AppsV1().Deployments(s.system).Patch(t.Context(), deployment, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		err = s.waitRollout(t.Context(), s.system, deployment)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s rolled out in %s: %s", time.Now().Format(time.TimeOnly), deployment, time.Since(begun).Round(time.Second), patch)
}

func imageOf(pod *corev1.PodSpec, container string) string {
	for _, c := range pod.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// use is traffic on a stage: functions that are warm, and every now and then a new one.
type use struct {
	pool  *pool
	warm  kept
	cold  *cold
	begun time.Time
}

const (
	warmTenants = 3
	// rarePause is between two first requests; a slow node starts few pods at a time.
	rarePause = 2 * time.Second
)

func (s *stage) startUse(t *testing.T) *use {
	t.Helper()
	p := s.newPool(t, 6)
	u := &use{pool: p, warm: p.keepWarm(t, warmTenants), begun: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	u.cold = &cold{cancel: cancel, pods: map[types.UID]bool{}}
	u.cold.wg.Go(func() { u.cold.run(ctx, p, rarePause) })
	t.Cleanup(func() { u.cold.stop() })
	return u
}

// waitMore waits until some new tenants have been served after what was just done.
func (u *use) waitMore(t *testing.T) {
	t.Helper()
	seen := u.cold.count()
	eventually(t, "first requests", func() (bool, string) {
		n := u.cold.count()
		return n >= seen+3, fmt.Sprint(n)
	})
}

// stop fails the test for each request that was not served, and where a warm function's pod was another.
func (u *use) stop(t *testing.T) {
	t.Helper()
	problems := u.cold.stop()
	for _, problem := range problems {
		t.Error(problem)
	}
	warm := u.warm.stopAll(t)
	t.Logf("%d warm requests and %d first ones in %s, %d of the first ones failed", warm, u.cold.count(), time.Since(u.begun).Round(time.Second), len(problems))
}

// wantOneRing adds a controller of another release for a while. Each replica, of whatever release, must name the owners
// that this release's ring gives.
func (s *stage) wantOneRing(t *testing.T, other release) {
	t.Helper()
	gone := s.addController(t, other)
	pods := s.systemPods(t, controllerName)
	ips, images := make([]string, len(pods)), map[string]bool{}
	for i, pod := range pods {
		ips[i], images[imageOf(&pod.Spec, "controller")] = pod.Status.PodIP, true
	}
	if len(pods) != 3 || len(images) != 2 {
		t.Fatalf("%d controllers of %d releases, want 3 of 2", len(pods), len(images))
	}
	r := ring.New(ips...)
	for _, ip := range ips {
		api := s.operatorAt(t, ip)
		eventually(t, "the owners that the ring gives, from controller "+ip, func() (bool, string) {
			answer, err := api.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{})
			if err != nil {
				return false, err.Error()
			}
			state := answer.GetClusterState()
			owners, wrong := ownersOf(state, r)
			return len(state.GetControllerIps()) == len(ips) && len(owners) > 1 && sum(owners) > warmTenants && len(wrong) == 0,
				fmt.Sprintf("controllers %v, functions by owner %v, wrong: %v", state.GetControllerIps(), owners, wrong)
		})
	}
	gone()
}

// ownersOf counts functions by owner, and lists those that have another than the ring gives.
func ownersOf(state *skipperpb.ClusterState, r *ring.Ring) (counts map[string]int, wrong []string) {
	counts = map[string]int{}
	for _, v := range state.GetSupervisors() {
		want, _ := r.Owner(fn.KeyOf(v.GetFunction()).Hash())
		counts[v.GetResponsibleControllerIp()]++
		if got := v.GetResponsibleControllerIp(); got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, not %s", v.GetFunction().GetTenant(), got, want))
		}
	}
	return counts, wrong
}

func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// addController starts one more replica, which no Deployment owns; gone ends it in good order.
func (s *stage) addController(t *testing.T, of release) (gone func()) {
	t.Helper()
	d, err := s.kube.AppsV1().Deployments(s.system).Get(t.Context(), controllerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := s.kube.CoreV1().Pods(s.system)
	pod, err := pods.Create(t.Context(), s.strayController(d, of), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a controller of the other release", func() (bool, string) {
		now, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && isReady(now), fmt.Sprint(err)
	})
	return func() {
		if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its end", func() (bool, string) {
			_, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	}
}

func (s *stage) strayController(d *appsv1.Deployment, of release) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "other-release-", Labels: d.Spec.Template.Labels},
		Spec:       *d.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.Containers[0].Image = of["controller"]
	return pod
}

// operatorAt calls the controller with that address.
func (s *stage) operatorAt(t *testing.T, ip string) skipperpb.ControllerServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(ip, "50051"), grpc.WithTransportCredentials(s.certificate(t, identity.Operator)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // only says that it is closed already
	return skipperpb.NewControllerServiceClient(conn)
}

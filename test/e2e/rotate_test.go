//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

const (
	tokenSecret = "skipper-paseto-key"
	publicKeys  = "skipper-paseto-public-key"
	publicPath  = "/var/run/skipper/paseto/public.pem"
	tlsPath     = "/var/run/secrets/skipper/tls/"
	// reread is when controllers and extproc have read changed TLS files for certain.
	reread = 6 * time.Second
	// nudgeNote changes a pod, upon which its kubelet brings it changed Secrets and ConfigMaps at once.
	nudgeNote = "skipper-e2e/nudge"
)

// rotationStory replaces the key of the assignment tokens, by the operator's command, and the TLS authority with all
// certificates, by the three steps of docs/trust.md. Controllers restart twice meanwhile, so that everybody connects
// anew: when certificates of both authorities are about, and when one is trusted alone. Red: a step comes before what
// it needs has reached every pod, or somebody does not read changed files.
//
// The kubelet is told to look at once, and what the command waits for is taken as passed when the files have been seen
// in the pods. With SKIPPER_E2E_OUTAGE set all of it takes the time that it takes.
func rotationStory(t *testing.T) {
	program := buildCommand(t) // before there is load
	s := newStage(t, 2, stageSettings())
	s.useService(t)
	u := s.startUse(t)
	r := &rotation{stage: s, pool: u.pool, patient: os.Getenv(longOutage) != "", program: program}
	stranger := s.certificate(t, identity.Operator) // what is trusted before, and not afterwards
	r.apply(t, "prepare")
	r.apply(t, "publish")
	old, next := r.secret(t, identity.Operator).Data["ca.crt"], r.issueAll(t)
	r.writeTLS(t, func(role identity.Role, data map[string][]byte) { data["ca.crt"] = slices.Concat(old, next.authority) })
	r.writeTLS(t, func(role identity.Role, data map[string][]byte) {
		data["tls.crt"], data["tls.key"] = next.pairs[role].Cert, next.pairs[role].Key
	}, func() { s.restartControllers(t) })
	r.writeTLS(t, func(role identity.Role, data map[string][]byte) { data["ca.crt"] = next.authority })
	r.waitPublished(t)
	r.apply(t, "switch")
	if err := s.waitRollout(t.Context(), s.system, controllerName); err != nil {
		t.Fatal(err)
	}
	s.wantTrusted(t, "certificate of the old authority", stranger, false)
	s.wantTrusted(t, "certificate of the new authority", s.certificate(t, identity.Operator), true)
	r.apply(t, "retire", "--retire-after=1s")
	r.waitKeys(t)
	u.waitMore(t)
	u.stop(t)
}

// rotation is what replaces keys on a stage.
type rotation struct {
	*stage
	pool    *pool
	patient bool
	program string
	nudges  int
}

// buildCommand builds the operator's command line.
func buildCommand(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "skipper")
	mustRun(t, "../..", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/skipper")
	return program
}

// apply has the command do the next step, which must be that one.
func (r *rotation) apply(t *testing.T, step string, flags ...string) {
	t.Helper()
	path, err := kubeconfigPath()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"keys", "rotate", "--apply", "-o", "json", "--kubeconfig", path, "--system-namespace", r.system}, flags...)
	eventuallyFor(t, 2*patience, "step "+step, func() (bool, string) {
		out, err := exec.CommandContext(t.Context(), r.program, args...).Output()
		if err != nil {
			t.Fatalf("skipper %v: %v: %s", args, err, out)
		}
		var did struct {
			Step string `json:"step"`
			Done bool   `json:"done"`
		}
		if err := json.Unmarshal(out, &did); err != nil {
			t.Fatalf("read %s: %v", out, err)
		}
		if did.Done && did.Step != step {
			t.Fatalf("the command did %s, want %s", did.Step, step)
		}
		return did.Done, string(out)
	})
	t.Logf("%s %s", time.Now().Format(time.TimeOnly), step)
}

// waitPublished waits until every pod knows the next key. The patient wait out the command's two minutes.
func (r *rotation) waitPublished(t *testing.T) {
	t.Helper()
	r.waitKeys(t)
	if r.patient {
		return
	}
	long := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	patch := mustJSON(t, map[string]any{"metadata": map[string]any{"annotations": map[string]string{"skipper/key-published-at": long}}})
	_, err := r.kube.CoreV1().Secrets(r.system).Patch(t.Context(), tokenSecret, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// waitKeys waits until the pods that can be claimed have the public keys that were published.
func (r *rotation) waitKeys(t *testing.T) {
	t.Helper()
	m, err := r.kube.CoreV1().ConfigMaps(r.functions).Get(t.Context(), publicKeys, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.pool.waitFull(t)
	var free []corev1.Pod
	for _, e := range r.pool.pods.free() {
		free = append(free, *e.pod)
	}
	r.waitFiles(t, free, modelPool, map[string][]byte{publicPath: []byte(m.Data["public.pem"])})
}

// waitFiles waits until a program of each pod sees these files.
func (r *rotation) waitFiles(t *testing.T, pods []corev1.Pod, program string, want map[string][]byte) {
	t.Helper()
	if !r.patient {
		r.nudge(t, pods)
	}
	for _, pod := range pods {
		root := fmt.Sprintf("/proc/%d/root", processOf(t, &pod, program).pid)
		eventuallyFor(t, 2*patience, "changed files in "+pod.Name, func() (bool, string) {
			for path, content := range want {
				got, err := os.ReadFile(root + path)
				if os.IsNotExist(err) && r.ended(t, &pod) {
					return true, "" // a pod that has ended meanwhile needs them no more
				}
				if err != nil || !bytes.Equal(got, content) {
					return false, fmt.Sprintf("%s has %d bytes, %v", path, len(got), err)
				}
			}
			return true, ""
		})
	}
}

func (r *rotation) ended(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	now, err := r.kube.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	return err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil
}

// nudge has the kubelet look at the pods' files now, and not within a minute.
func (r *rotation) nudge(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	r.nudges++
	patch := mustJSON(t, map[string]any{"metadata": map[string]any{"annotations": map[string]string{nudgeNote: fmt.Sprint(r.nudges)}}})
	for _, pod := range pods {
		_, err := r.kube.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !r.ended(t, &pod) {
			t.Fatal(err)
		}
	}
}

// issued is another authority with certificates of all roles.
type issued struct {
	authority []byte
	pairs     map[identity.Role]issue.Pair
}

func tlsRoles() []identity.Role {
	return []identity.Role{identity.Controller, identity.Envoy, identity.Extproc, identity.Operator}
}

func (r *rotation) issueAll(t *testing.T) issued {
	t.Helper()
	now := time.Now()
	a, err := issue.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	out := issued{authority: a.Cert, pairs: map[identity.Role]issue.Pair{}}
	for _, role := range tlsRoles() {
		request := issue.Request{Role: role}
		if role == identity.Controller {
			request.Names = issue.ServiceNames(controllerName, r.system)
		}
		if out.pairs[role], err = a.Issue(request, now); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func (r *rotation) secret(t *testing.T, role identity.Role) *corev1.Secret {
	t.Helper()
	s, err := r.kube.CoreV1().Secrets(r.system).Get(t.Context(), "skipper-tls-"+string(role), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// writeTLS is one of the three steps: it changes the Secrets of all roles, does what is to be done before they have
// reached the pods, and waits until they have, and are used.
func (r *rotation) writeTLS(t *testing.T, change func(identity.Role, map[string][]byte), meanwhile ...func()) {
	t.Helper()
	written := map[identity.Role]map[string][]byte{}
	for _, role := range tlsRoles() {
		s := r.secret(t, role)
		change(role, s.Data)
		if _, err := r.kube.CoreV1().Secrets(r.system).Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		written[role] = map[string][]byte{}
		for name, content := range maps.All(s.Data) {
			written[role][tlsPath+name] = content
		}
	}
	for _, f := range meanwhile {
		f()
	}
	r.waitFiles(t, r.systemPods(t, controllerName), "controller", written[identity.Controller])
	r.waitFiles(t, r.systemPods(t, gatewayName), "extproc", written[identity.Extproc])
	r.waitFiles(t, r.systemPods(t, gatewayName), "envoy", written[identity.Envoy])
	during(t, reread, func() {})
	t.Logf("%s changed TLS files are everywhere", time.Now().Format(time.TimeOnly))
}

// restartControllers replaces all of them.
func (s *stage) restartControllers(t *testing.T) {
	t.Helper()
	stamp := map[string]string{"skipper-e2e/restarted-at": time.Now().Format(time.RFC3339Nano)}
	s.patchAndWait(t, controllerName, mustJSON(t, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": stamp}}}}))
}

// wantTrusted calls a controller with a certificate of an operator.
func (s *stage) wantTrusted(t *testing.T, what string, c credentials.TransportCredentials, want bool) {
	t.Helper()
	_, err := skipperpb.NewControllerServiceClient(s.dialController(t, c, nil)).GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{})
	if wrong := status.Code(err) != codes.Unavailable; want && err != nil || !want && wrong {
		t.Errorf("%s: %v, want trusted %t", what, err, want)
	}
}

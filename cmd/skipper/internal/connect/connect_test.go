package connect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	skipperpb "skipper/proto"
)

func controller(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: name, Labels: map[string]string{"app": "c"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{}}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	change(p)
	return p
}

func cluster(pods ...*corev1.Pod) *Cluster {
	kube := fake.NewClientset()
	for _, p := range pods {
		_ = kube.Tracker().Add(p)
	}
	return &Cluster{Options: Options{System: "sys", Selector: "app=c"}, Kube: kube}
}

func TestReplicasAreReadyOnesFirst(t *testing.T) {
	t.Parallel()
	c := cluster(
		controller("a", func(p *corev1.Pod) { p.Status.Conditions = nil }),
		controller("b", func(*corev1.Pod) {}),
		controller("c", func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "grpc", ContainerPort: 9}}
		}),
		controller("d", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		controller("e", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{}, []string{"x"} }),
		controller("f", func(p *corev1.Pod) { p.Labels = nil }),
	)
	got, err := c.Replicas(t.Context())
	want := []Replica{{"b", "10.0.0.1", true, 50051}, {"c", "10.0.0.1", true, 9}, {"a", "10.0.0.1", false, 50051}}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	if _, err := cluster().Replicas(t.Context()); err == nil || !strings.Contains(err.Error(), "--controller") {
		t.Errorf("no controllers: %v", err)
	}
}

func TestFunctionNamespaces(t *testing.T) {
	t.Parallel()
	env := []corev1.EnvVar{{Name: "SKIPPER_FUNCTION_NAMESPACES", Value: "b, a"}}
	for _, row := range []struct {
		name      string
		container corev1.Container
		want      string
	}{
		{"variable", corev1.Container{Env: env}, "a b"},
		{"flag", corev1.Container{Args: []string{"--function-namespaces=x,y"}, Env: env}, "x y"},
		{"flag of two words", corev1.Container{Command: []string{"controller", "--function-namespaces", "z"}}, "z"},
		{"none", corev1.Container{Args: []string{"--function-namespaces"}}, ""},
	} {
		c := cluster(controller("a", func(p *corev1.Pod) { p.Spec.Containers[0] = row.container }), controller("b", func(p *corev1.Pod) { p.Spec.Containers[0] = row.container }))
		got, err := c.FunctionNamespaces(t.Context())
		if strings.Join(got, " ") != row.want || (err == nil) == (row.want == "") {
			t.Errorf("%s: %v, %v", row.name, got, err)
		}
	}
}

// kubeconfig names a server that answers as an API server does, or nothing.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: " + server + "}}]\n" +
		"contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenReadsTheServersClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", at.Format(http.TimeFormat))
		if r.URL.Path != "/version" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	c, err := Open(Options{Kubeconfig: kubeconfig(t, server.URL)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Clock(t.Context()); err != nil || !got.Equal(at) {
		t.Errorf("%v, %v", got, err)
	}
	if _, _, err := c.Forward.Forward(t.Context(), "sys", "a", 1); err == nil || !strings.Contains(err.Error(), "pods/portforward") {
		t.Errorf("a forward that is forbidden: %v", err)
	}
}

// A controller that is named can be asked without a cluster; the cluster's
// questions then fail for the reason that there is none.
func TestOpenWithoutACluster(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := Open(Options{Kubeconfig: missing}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("error is %v", err)
	}
	c, err := Open(Options{Kubeconfig: missing, Controller: "127.0.0.1:1", Plaintext: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Replicas(t.Context()); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("error is %v", err)
	}
	client, err := c.Controller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{}); err == nil {
		t.Error("nobody listens there")
	}
}

func TestCloseEndsWhatWasOpened(t *testing.T) {
	t.Parallel()
	f := &forwards{}
	c := cluster(controller("a", func(*corev1.Pod) {}), controller("b", func(*corev1.Pod) {}))
	c.Forward, c.Plaintext = f, true
	if _, err := c.Controller(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ForwardUntilClose(t.Context(), "sys", "b", 2); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if f.open != 0 || f.total != 2 {
		t.Errorf("%d of %d forwards are open", f.open, f.total)
	}
	f.err = errors.New("forbidden")
	if _, err := c.Controller(t.Context()); err == nil || strings.Count(err.Error(), "forbidden") != 2 {
		t.Errorf("both replicas were refused: %v", err)
	}
}

// forwards counts what is open.
type forwards struct {
	open, total int
	err         error
}

func (f *forwards) Forward(context.Context, string, string, uint16) (addr string, closed func(), err error) {
	if f.err != nil {
		return "", nil, f.err
	}
	f.open++
	f.total++
	return "127.0.0.1:1", func() { f.open-- }, nil
}

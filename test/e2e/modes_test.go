//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"skipper/proto/reason"
)

const (
	// edgeSnippet is what stays a user's own of an Envoy that gets Skipper's parts.
	edgeSnippet = "../../docs/snippets/existing-envoy.yaml"
	// hostName is the Deployment that gets a gateway, and its container.
	hostName = "host"
	// hostGrace is longer than any wait: a pod that ends within one has ended by itself.
	hostGrace = 2 * 90
)

// mode is one way of the chart to have a gateway in a pod of the user's.
type mode struct {
	// golden is what the chart gives; namespace and container are those that its values name.
	golden, namespace, container string
	// program runs in the pod; requests go to port, from inside of the pod or from outside.
	program, port string
	inside        bool
	// metrics is where Envoy's are, seen from inside of the pod.
	metrics string
	// cli is the image that the bootstrap comes from.
	cli string
	// host makes the Deployment as it is before.
	host func(t *testing.T, g *guest) *appsv1.Deployment
}

// The chart's gateways that are no Deployment of its own start as the docs say, each in a namespace of its own, and
// carry requests to the pods of the deployed Skipper. Red: a part is missing in what the chart or the docs hand out.
func TestModes(t *testing.T) {
	t.Parallel()
	cli := treeCLI(t)
	for name, m := range map[string]mode{
		"sidecar": {
			golden: "snippet", namespace: "shop", container: "shop", program: "echo", port: "10000", inside: true,
			metrics: "http://127.0.0.1:9902/metrics", host: shop,
		},
		"existing": {
			golden: "existing", namespace: "edge", container: "proxy", program: "envoy", port: "8000",
			metrics: "http://127.0.0.1:9901/stats/prometheus", host: edge,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.cli = cli
			modeStory(t, m)
		})
	}
}

func modeStory(t *testing.T, m mode) {
	g := newGuest(t, m)
	g.wantOpen(t)
	p := g.newPool(t, 2)
	if a := g.get(t.Context(), nil, "/"); a.status != http.StatusBadRequest || a.reason() != reason.HeaderMissing {
		t.Errorf("a request for no function: %s", a)
	}
	if !m.inside {
		if a := g.get(t.Context(), nil, "/own"); a.status != http.StatusOK || string(a.body) != "own" {
			t.Errorf("a request that is Envoy's own: %s", a)
		}
	}
	first := mustEcho(t, p.get(t.Context(), p.function("a"), "/cold"))
	if first.Tenant != p.tenant("a") {
		t.Errorf("the pod believes in tenant %q, want %q", first.Tenant, p.tenant("a"))
	}
	p.wantSteady(t, "a", first.PodUID)
	p.wantClaims(t, p.tenant("a"), 1)
	p.waitGone(t, mustEcho(t, p.get(t.Context(), p.oneshot("b"), "/")).PodUID)
	g.wantSecondPass(t, p)
	g.wantDrain(t, p)
}

// guest is a pod of a user with a gateway in it.
type guest struct {
	*world
	mode
	home    string // its namespace
	pod     *corev1.Pod
	objects []*unstructured.Unstructured
	inner   *http.Client // requests from inside of the pod
}

// newGuest does what docs/install.md says for a mode, and returns when the pod is ready.
func newGuest(t *testing.T, m mode) *guest {
	t.Helper()
	g := &guest{world: newWorld(t), mode: m}
	model := g.systemPod(t, gatewayName)
	skipUnlessNode(t, model.Status.HostIP)
	g.home = (&stage{world: g.world}).makeNamespace(t)
	g.objects = g.rendered(t, model)
	t.Cleanup(func() {
		if t.Failed() {
			(&world{kube: g.kube, system: g.home}).dumpLogs(t.Output())
		}
	})
	g.copyKeys(t)
	deployments := g.kube.AppsV1().Deployments(g.home)
	if _, err := deployments.Create(t.Context(), m.host(t, g), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.patch(t, g.handedOut(t, "pod.yaml"))
	g.patch(t, "spec: {replicas: 1}")
	if err := g.waitRollout(t.Context(), g.home, hostName); err != nil {
		t.Fatal(err)
	}
	g.aim(t)
	return g
}

// rendered is what the chart gives, with the guest's namespace and the images of the deployed Skipper.
func (g *guest) rendered(t *testing.T, model *corev1.Pod) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(chartGoldens), g.golden+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	parts := images(model)
	parts["cli"] = g.cli
	names := []string{"namespace: " + g.namespace, "namespace: " + g.home, "-namespaces=" + g.namespace, "-namespaces=" + g.home}
	for name, image := range parts {
		names = append(names, "image: skipper-"+name+":latest", "image: "+image)
	}
	return objects(t, strings.NewReplacer(names...).Replace(string(text)))
}

// treeCLI gives the command line of this tree to the local node until the end of the test: what reads the patch has to
// know what the chart of this tree says there, whatever is deployed.
func treeCLI(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "skipper"), filepath.Join(dir, "skipper.tar")
	image := fmt.Sprintf("docker.io/local/skipper-cli:%s-%d", suiteLabel, os.Getpid())
	mustRun(t, "../..", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/skipper")
	packImage(t, program, image, archive)
	ctr(t, "images", "import", archive)
	t.Cleanup(func() { ctr(t, "images", "rm", image) })
	return image
}

// images are those of a gateway's containers, by the chart's names.
func images(gateway *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range gateway.Spec.Containers {
		out[c.Name] = c.Image
	}
	return out
}

// handedOut is a text that the chart has for users of the mode.
func (g *guest) handedOut(t *testing.T, key string) string {
	t.Helper()
	for _, o := range g.objects {
		if text, found, _ := unstructured.NestedString(o.Object, "data", key); found {
			return text
		}
	}
	t.Fatalf("the chart hands out no %s", key)
	return ""
}

// patch is kubectl patch deployment --patch-file.
func (g *guest) patch(t *testing.T, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "- name: "+g.container+"\n", "- name: "+hostName+"\n")
	patch, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	opts := metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err = g.kube.AppsV1().Deployments(g.home).Patch(t.Context(), hostName, types.StrategicMergePatchType, patch, opts); err != nil {
		t.Fatal(err)
	}
}

// copyKeys has the chart's Job put the certificates into the guest's namespace, by the rights that the chart gives it.
func (g *guest) copyKeys(t *testing.T) {
	t.Helper()
	client, err := dynamic.NewForConfig(g.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range g.objects {
		if o.GetNamespace() == g.home {
			gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: strings.ToLower(o.GetKind()) + "s"}
			if _, err := client.Resource(gvr).Namespace(g.home).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, o := range g.objects {
		if o.GetKind() == "Job" {
			g.runJob(t, o)
		}
	}
}

// runJob runs a Job beside the one of the deployed release. It removes itself where the test cannot.
func (g *guest) runJob(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	var job batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &job); err != nil {
		t.Fatal(err)
	}
	jobs := g.kube.BatchV1().Jobs(job.Namespace)
	job.ObjectMeta = metav1.ObjectMeta{GenerateName: job.Name + "-" + suiteLabel + "-"}
	made, err := jobs.Create(t.Context(), &job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	afterwards(t, "remove job "+made.Name, func(ctx context.Context) error {
		return ignore(jobs.Delete(ctx, made.Name, metav1.DeleteOptions{PropagationPolicy: &background}), apierrors.IsNotFound)
	})
	eventually(t, "end of job "+made.Name, func() (bool, string) {
		now, err := jobs.Get(t.Context(), made.Name, metav1.GetOptions{})
		return err == nil && now.Status.Succeeded > 0, fmt.Sprintf("%+v, %v", now.Status, err)
	})
}

// deployment is one without pods yet.
func deployment(c corev1.Container, volumes ...corev1.Volume) *appsv1.Deployment {
	none, grace, labels := int32(0), int64(hostGrace), map[string]string{"app": hostName}
	c.Name = hostName
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: hostName},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{c}, Volumes: volumes},
			},
		},
	}
}

// shop is an application, of which only the network matters: its requests come from there.
func shop(t *testing.T, g *guest) *appsv1.Deployment {
	model, err := g.kube.AppsV1().Deployments(g.functions).Get(t.Context(), modelPool, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return deployment(corev1.Container{
		Image: model.Spec.Template.Spec.Containers[0].Image,
		Env:   []corev1.EnvVar{{Name: "SKIPPER_ECHO_STOP_DELAY", Value: "0s"}}, // so that the gateway soon has its turn to end
	})
}

// edge is an Envoy with a listener and a route of its own, and Skipper's parts in its file.
func edge(t *testing.T, g *guest) *appsv1.Deployment {
	own, err := os.ReadFile(edgeSnippet)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.kube.CoreV1().ConfigMaps(g.home).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: hostName}, Data: map[string]string{"envoy.yaml": joined(t, string(own), g.handedOut(t, "envoy.yaml"))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return deployment(corev1.Container{
		Image: images(g.systemPod(t, gatewayName))["envoy"],
		Args:  []string{"--config-path", "/etc/envoy/envoy.yaml", "--service-node", "$(POD_NAME)", "--service-cluster", "edge", "--disable-hot-restart"},
		Env: []corev1.EnvVar{{
			Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: hostName, MountPath: "/etc/envoy"}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/own", Port: intstr.Parse(g.port)},
		}},
	}, corev1.Volume{Name: hostName, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: hostName}},
	}})
}

// joined merges Skipper's parts into a file by the comments of edgeSnippet.
func joined(t *testing.T, own, parts string) string {
	t.Helper()
	var mine, theirs map[string]any
	for text, into := range map[string]*map[string]any{own: &mine, parts: &theirs} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	ingress := detach(t, theirs, "ingress")
	merge(mine, theirs)
	listeners := at(mine, "static_resources", "listeners").([]any)
	manager := []any{"filter_chains", 0, "filters", 0, "typed_config"}
	merge(at(listeners[named(listeners, "edge")], manager...), at(ingress, manager...))
	text, err := json.Marshal(mine) // which is YAML
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// detach takes a listener out of a configuration.
func detach(t *testing.T, config map[string]any, name string) any {
	t.Helper()
	static := config["static_resources"].(map[string]any)
	listeners := static["listeners"].([]any)
	i := named(listeners, name)
	if i < 0 {
		t.Fatalf("the parts have no listener %s", name)
	}
	out := listeners[i]
	static["listeners"] = slices.Delete(listeners, i, i+1)
	return out
}

// at follows names and numbers into a document.
func at(v any, path ...any) any {
	for _, step := range path {
		if name, is := step.(string); is {
			v = v.(map[string]any)[name]
		} else {
			v = v.([]any)[step.(int)]
		}
	}
	return v
}

// named finds an element of a list by its name; -1 is none.
func named(list []any, name any) int {
	return slices.IndexFunc(list, func(e any) bool {
		m, is := e.(map[string]any)
		return is && name != nil && m["name"] == name
	})
}

// merge adds to own what parts has: members of maps, and elements of lists behind its own, those of one name as one.
// Where both say something else, own stays.
func merge(own, parts any) any {
	switch parts := parts.(type) {
	case map[string]any:
		mine := own.(map[string]any)
		for name, v := range parts {
			if there, is := mine[name]; is {
				v = merge(there, v)
			}
			mine[name] = v
		}
	case []any:
		mine := own.([]any)
		for _, v := range parts {
			m, is := v.(map[string]any)
			if i := named(mine, m["name"]); i >= 0 {
				mine[i] = merge(mine[i], v)
			} else if is || !slices.Contains(mine, v) {
				mine = append(mine, v)
			}
		}
		return mine
	}
	return own
}

// aim sends requests to the gateway in the pod from now on.
func (g *guest) aim(t *testing.T) {
	t.Helper()
	pods, err := g.kube.CoreV1().Pods(g.home).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods in %s, %v", len(pods.Items), g.home, err)
	}
	pod := &pods.Items[0]
	g.pod = pod
	g.inner = &http.Client{Transport: &http.Transport{DialContext: processOf(t, pod, g.program).dial, DisableCompression: true}}
	t.Cleanup(g.inner.CloseIdleConnections)
	g.gateway = "http://" + net.JoinHostPort(pod.Status.PodIP, g.port)
	if g.inside {
		g.gateway, g.http = "http://127.0.0.1:"+g.port, g.inner
	}
}

// wantOpen says what other pods reach: a gateway whose requests come from inside refuses them at the pod's address, and
// not what the kubelet asks there, nor requests at its own.
func (g *guest) wantOpen(t *testing.T) {
	t.Helper()
	if !g.inside {
		return
	}
	for _, row := range []struct {
		dial func(ctx context.Context, network, address string) (net.Conn, error)
		host string
		port string
		open bool
	}{
		{new(net.Dialer).DialContext, g.pod.Status.PodIP, g.port, false},
		{processOf(t, g.pod, g.program).dial, g.pod.Status.PodIP, g.port, false},
		{processOf(t, g.pod, g.program).dial, "127.0.0.1", g.port, true},
		{new(net.Dialer).DialContext, g.pod.Status.PodIP, "8081", true},
		{new(net.Dialer).DialContext, g.pod.Status.PodIP, "8082", true},
		{new(net.Dialer).DialContext, g.pod.Status.PodIP, "9902", true},
	} {
		conn, err := row.dial(t.Context(), "tcp", net.JoinHostPort(row.host, row.port))
		if err == nil {
			_ = conn.Close()
		}
		if refused := errors.Is(err, syscall.ECONNREFUSED); refused == row.open || err != nil && !refused {
			t.Errorf("%s port %s: open should be %t, dial says %v", row.host, row.port, row.open, err)
		}
	}
}

// passes matches Envoy's count of requests that came a second time.
var passes = regexp.MustCompile(`(?m)^envoy_http_downstream_rq_total\{envoy_http_conn_manager_prefix="second_pass"\} ([1-9][0-9]*)$`)

// wantSecondPass kills instances until a request finds one dead, and goes on to another.
func (g *guest) wantSecondPass(t *testing.T, p *pool) {
	t.Helper()
	uid := p.waitAnswer(t, "a", "")
	eventually(t, "a request that was sent a second time", func() (bool, string) {
		e, _ := p.pods.entry(uid)
		processOf(t, e.pod, "echo").kill(t)
		uid = p.waitAnswer(t, "a", "")
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.metrics, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := sendWith(g.inner, r)
		return passes.Match(a.body), fmt.Sprintf("status %d, %d bytes of metrics, %v", a.status, len(a.body), a.err)
	})
}

// wantDrain stops the pod while it carries a request, which still comes to its end, and then the pod to its.
func (g *guest) wantDrain(t *testing.T, p *pool) {
	t.Helper()
	const events = 24
	resp, err := g.http.Do(p.request(t.Context(), http.MethodGet, p.function("c"), fmt.Sprintf("/sse?events=%d&every=250ms", events), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	readEvents(t, in, 1)
	g.patch(t, "spec: {replicas: 0}")
	rest, err := io.ReadAll(in)
	if n := strings.Count(string(rest), "id: "); err != nil || n != events-1 {
		t.Errorf("of a request in progress when the pod was stopped came %d more events, want %d: %v", n, events-1, err)
	}
	if err := g.waitRollout(t.Context(), g.home, hostName); err != nil {
		t.Error(err)
	}
}

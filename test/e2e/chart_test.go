//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// chartGoldens are what the chart gives in each of its modes.
const chartGoldens = "../../deploy/local/internal/chart/testdata/*.yaml"

// The API server accepts every object of the chart, and knows all of its fields.
func TestChartIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files, err := filepath.Glob(chartGoldens)
	if err != nil || len(files) < 4 {
		t.Fatalf("%d renderings of the chart, %v", len(files), err)
	}
	accept := w.acceptor(t)
	for _, file := range files {
		for _, o := range documents(t, file) {
			if err := accept(o); err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(file), o.GetKind(), o.GetName(), err)
			}
		}
	}
	// What is wrong is refused, so what was accepted is right.
	wrong := documents(t, files[0])[0]
	wrong.Object["replicass"] = int64(1)
	if err := accept(wrong); err == nil || !strings.Contains(err.Error(), "replicass") {
		t.Errorf("an object with a field that does not exist: %v", err)
	}
}

// The patches that put a gateway into a pod fit a Deployment.
func TestGatewayPatchesAreAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, mode := range []string{"sidecar", "existing"} {
		found := false
		for _, o := range documents(t, filepath.Join(filepath.Dir(chartGoldens), mode+".yaml")) {
			text, ok, err := unstructured.NestedString(o.Object, "data", "pod.yaml")
			if err != nil || !ok {
				continue
			}
			found = true
			patch, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "- name: proxy", "- name: echo"))) // the container that there is
			if err != nil {
				t.Fatal(err)
			}
			opts := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			d, err := w.kube.AppsV1().Deployments(functionNamespace).Patch(t.Context(), modelPool, types.StrategicMergePatchType, patch, opts)
			if err != nil {
				t.Errorf("%s: %v", mode, err)
				continue
			}
			spec := d.Spec.Template.Spec
			if !hasExtproc(spec.InitContainers) || len(spec.Containers) != 1 || d.Spec.Template.Labels["skipper/gateway"] != "true" {
				t.Errorf("%s: the patched pod has init containers %d, containers %d", mode, len(spec.InitContainers), len(spec.Containers))
			}
		}
		if !found {
			t.Errorf("%s: there is no patch", mode)
		}
	}
}

// hasExtproc tells whether one is there that goes on beside the pod's own containers.
func hasExtproc(containers []corev1.Container) bool {
	for _, c := range containers {
		if c.Name == "skipper-extproc" {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

// acceptor applies objects without a trace. Namespaces that the cluster does not have stand for its own.
func (w *world) acceptor(t *testing.T) func(*unstructured.Unstructured) error {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(w.kube.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	opts := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict, FieldManager: suiteLabel, Force: new(bool)}
	*opts.Force = true
	return func(o *unstructured.Unstructured) error {
		if o.GetNamespace() != systemNamespace {
			o.SetNamespace(functionNamespace)
		}
		o.SetName("dry-" + o.GetName()) // what is there may have fields that cannot change
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		body, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		_, err = client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Patch(t.Context(), o.GetName(), types.ApplyPatchType, body, opts)
		return err
	}
}

func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(text))
}

// objects reads documents of YAML.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, document := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatalf("%v in %.100q", err, document)
		}
		out = append(out, o)
	}
	return out
}

package docs_test

import (
	"bufio"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	_ "skipper/envoy" // all types of extensions that Skipper uses
)

const snippets = "../../docs/snippets/"

// Objects are read by the types of Kubernetes where these are at hand; of other
// ones the kind is known, and that they are YAML without a member twice.
func TestObjectsOfSnippets(t *testing.T) {
	known := map[string]string{
		"pool.yaml":          "apps/v1 Deployment",
		"envoy-gateway.yaml": "gateway.networking.k8s.io/v1 HTTPRoute",
		"istio.yaml":         "networking.istio.io/v1 VirtualService, networking.istio.io/v1 DestinationRule, security.istio.io/v1 PeerAuthentication",
	}
	others := map[string]bool{"envoy-in-front.yaml": true, "existing-envoy.yaml": true, "sidecar-values.yaml": true} // have tests of their own
	files, err := filepath.Glob(snippets + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		want, found := known[name]
		if !found && !others[name] {
			t.Errorf("%s is checked by no test: say here what it is", name)
		}
		if found {
			if got := kinds(t, read(t, file)); got != want {
				t.Errorf("%s holds %s, want %s", name, got, want)
			}
		}
	}
}

func kinds(t *testing.T, text string) string {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	var all string
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var o struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Metadata   map[string]any `json:"metadata"`
			Spec       map[string]any `json:"spec"`
		}
		if err = errors.Join(err, yaml.UnmarshalStrict(doc, &o)); err != nil {
			t.Fatalf("read object: %v in:\n%s", err, doc)
		}
		if all != "" {
			all += ", "
		}
		all += o.APIVersion + " " + o.Kind
	}
}

// The pool is one that Skipper takes: see docs/functions.md.
func TestPoolOfSnippets(t *testing.T) {
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(read(t, snippets+"pool.yaml")), &d); err != nil {
		t.Fatal(err)
	}
	label := d.Spec.Template.Labels["skipper/deployment"]
	if label != d.Name || d.Spec.Selector.MatchLabels["skipper/deployment"] != d.Name {
		t.Errorf("pods are labelled %q and selected by %v, want the name %q", label, d.Spec.Selector.MatchLabels, d.Name)
	}
	if e := d.Spec.Selector.MatchExpressions; len(e) != 1 || e[0].Key != "skipper/tenant" || e[0].Operator != "DoesNotExist" {
		t.Errorf("selector is %v, want skipper/tenant DoesNotExist", e)
	}
}

// Envoy's configuration is read, and checked, by Envoy's own types; so is that
// for an Envoy that is there.
func TestEnvoyConfigurationOfSnippets(t *testing.T) {
	for _, file := range []string{snippets + "envoy-in-front.yaml", snippets + "existing-envoy.yaml", "../../deploy/helm/skipper/files/existing-envoy.yaml"} {
		text, err := yaml.YAMLToJSONStrict([]byte(read(t, file)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var b bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := b.ValidateAll(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Values are those of the chart.
func TestValuesOfSnippets(t *testing.T) {
	var chart, values map[string]any
	for file, into := range map[string]*map[string]any{"../../deploy/helm/skipper/values.yaml": &chart, snippets + "sidecar-values.yaml": &values} {
		if err := yaml.UnmarshalStrict([]byte(read(t, file)), into); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "", values, chart)
}

func within(t *testing.T, path string, values, chart map[string]any) {
	t.Helper()
	for name, v := range values {
		there, found := chart[name]
		if !found && name != "GOMEMLIMIT" && !strings.HasPrefix(name, "SKIPPER_") {
			t.Errorf("the chart has no value %s.%s", path, name)
		}
		inner, is := v.(map[string]any)
		if deeper, too := there.(map[string]any); is && too {
			within(t, path+"."+name, inner, deeper)
		}
	}
}

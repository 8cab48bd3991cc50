package chart

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

const folder = "../../../helm/skipper"

// parse reads values as a user writes them.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func render(t *testing.T, values string) []Object {
	t.Helper()
	out, err := Render(folder, "skipper-system", parse(t, values))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// modes are the values that the goldens show.
var modes = map[string]string{
	"default":  "",
	"sidecar":  "gateway: {mode: sidecar, namespaces: [shop, api]}",
	"existing": "gateway: {mode: existing, namespaces: [edge], existingContainer: proxy}",
	"snippet":  "docs/snippets/sidecar-values.yaml",
	"every-value": `
images: {registry: registry.example:5000/team, tag: v1, pullPolicy: Always, pullSecrets: [pull], cli: "other/cli:v2"}
functionNamespaces: [a, b]
keys: {renewal: ""}
controller:
  replicas: 3
  env: {SKIPPER_LOG_LEVEL: debug, SKIPPER_KUBECONFIG_QPS: 50}
  resources: {limits: {cpu: 1}}
  nodeSelector: {disk: fast}
  tolerations: [{key: k, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: z, operator: Exists}]}]}}}
  priorityClassName: system-cluster-critical
  podAnnotations: {note: here}
gateway:
  replicas: 5
  terminationGracePeriodSeconds: 60
  holdTimeout: 10s
  service: {type: LoadBalancer, port: 8000, nodePort: 31000, annotations: {lb: internal}}
  envoy: {concurrency: 4, logLevel: info, env: {SKIPPER_TRUSTED_HOPS: 1}}
  extproc: {env: {SKIPPER_LOG_LEVEL: warn}}
  nodeSelector: {disk: slow}
  priorityClassName: high
  podAnnotations: {note: there}
networkPolicy: {enabled: false}
`,
}

func TestRenderIsGolden(t *testing.T) {
	for name, values := range modes {
		if strings.HasSuffix(values, ".yaml") {
			text, err := os.ReadFile(filepath.Join("../../../..", values))
			if err != nil {
				t.Fatal(err)
			}
			values = string(text)
		}
		objects := render(t, values)
		got := Join(objects, func(Object) bool { return true }) + "\n"
		golden := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s differs, run with -update if that is meant (-want +got):\n%s", name, d)
		}
	}
}

// What the schema refuses names the value, and nothing is rendered.
func TestSchemaRefuses(t *testing.T) {
	for values, named := range map[string]string{
		"replicas: 2":                                       "replicas",
		"controller: {replica: 2}":                          "replica",
		"controller: {replicas: 0}":                         "/controller/replicas",
		"controller: {replicas: two}":                       "/controller/replicas",
		"controller: {env: {log-level: debug}}":             "/controller/env",
		"controller: {env: {SKIPPER_NAMESPACE: x}}":         "SKIPPER_NAMESPACE",
		"controller: {env: {SKIPPER_X: [1]}}":               "/controller/env/SKIPPER_X",
		"controller: {resources: {limits: {memory: lots}}}": "/controller/resources/limits/memory",
		"controller: {resources: {limit: {memory: 1Gi}}}":   "/controller/resources",
		"functionNamespaces: []":                            "/functionNamespaces",
		"functionNamespaces: [a, a]":                        "/functionNamespaces",
		"functionNamespaces: [A_b]":                         "/functionNamespaces/0",
		"functionNamespaces: functions":                     "/functionNamespaces",
		"images: {tag: 'a b'}":                              "/images/tag",
		"images: {pullPolicy: Sometimes}":                   "/images/pullPolicy",
		"images: {skipper: x}":                              "skipper",
		"keys: {generate: 'yes'}":                           "/keys/generate",
		"keys: {renewal: daily}":                            "/keys/renewal",
		"gateway: {mode: daemonset}":                        "/gateway/mode",
		"gateway: {mode: sidecar}":                          "/gateway/namespaces",
		"gateway: {mode: existing, namespaces: []}":         "/gateway/namespaces",
		"gateway: {namespaces: [edge]}":                     "/gateway/namespaces",
		"gateway: {mode: existing, namespaces: [edge], envoy: {env: {SKIPPER_TRUSTED_HOPS: 1}}}": "/gateway/envoy/env",
		"gateway: {holdTimeout: 30}":                            "/gateway/holdTimeout",
		"gateway: {service: {port: 0}}":                         "/gateway/service/port",
		"gateway: {service: {type: ExternalName}}":              "/gateway/service/type",
		"gateway: {service: {nodePort: 70000}}":                 "/gateway/service/nodePort",
		"gateway: {envoy: {concurrency: 0}}":                    "/gateway/envoy/concurrency",
		"gateway: {envoy: {env: {SKIPPER_OUTPUT_DIR: /x}}}":     "SKIPPER_OUTPUT_DIR",
		"gateway: {extproc: {env: {SKIPPER_HOLD_TIMEOUT: 1s}}}": "SKIPPER_HOLD_TIMEOUT",
		"networkPolicy: false":                                  "/networkPolicy",
		"networkPolicy: {enabled: 1}":                           "/networkPolicy/enabled",
	} {
		_, err := Render(folder, "skipper-system", parse(t, values))
		if err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%s: error %v, want one that names %s", values, err, named)
		}
	}
}

// What an Envoy that is there gets has the release's values.
func TestExistingEnvoyHasTheValues(t *testing.T) {
	for hold, most := range map[string]string{"30s": "35s", "1m30s": "95s", "500ms": "5.500s", "1.5h": "5405s", "2h": "7205s"} {
		objects := render(t, "gateway: {mode: existing, namespaces: [edge], holdTimeout: "+hold+"}")
		text := Join(objects, func(o Object) bool { return o.Name == "skipper-existing-envoy" })
		if n := strings.Count(text, "max_message_timeout: "+most+"\n"); n != 2 {
			t.Errorf("hold time %s: %d passes wait for %s at most, want 2", hold, n, most)
		}
		if n := strings.Count(text, "SKIPPER_HOLD_TIMEOUT, value: "+hold+"}"); n != 2 {
			t.Errorf("hold time %s: said %d times, want to the bootstrap and to extproc", hold, n)
		}
	}
	objects, err := Render(folder, "other", parse(t, "gateway: {mode: existing, namespaces: [edge]}"))
	if err != nil {
		t.Fatal(err)
	}
	text := Join(objects, func(o Object) bool { return o.Name == "skipper-existing-envoy" })
	if strings.Contains(text, "skipper-system") || !strings.Contains(text, "sni: skipper-controller.other.svc.cluster.local") {
		t.Error("a release in another namespace is not where its Envoys look for controllers")
	}
}

// A sidecar is its own pod's alone, unless a value says otherwise; a gateway in pods of its own is everybody's.
func TestSidecarTakesRequestsOfItsPod(t *testing.T) {
	for values, want := range map[string][]string{
		"gateway: {mode: sidecar, namespaces: [shop]}":                                             {"SKIPPER_HTTP_ADDRESS, value: 127.0.0.1}"},
		`gateway: {mode: sidecar, namespaces: [shop], envoy: {env: {SKIPPER_HTTP_ADDRESS: "::"}}}`: {`SKIPPER_HTTP_ADDRESS, value: "::"}`},
		"gateway: {mode: existing, namespaces: [edge]}":                                            nil,
		"": nil,
	} {
		text := Join(render(t, values), func(Object) bool { return true })
		if got := regexp.MustCompile(`SKIPPER_HTTP_ADDRESS.*\}`).FindAllString(text, -1); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", values, got, want)
		}
	}
}

// The defaults and all that the goldens show fit the schema; every name in the schema has a default, and the other way round.
func TestSchemaAndDefaultsNameTheSame(t *testing.T) {
	var schema map[string]any
	text, err := os.ReadFile(filepath.Join(folder, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	compareNames(t, "", schema["properties"].(map[string]any), parse(t, string(text)))
}

func compareNames(t *testing.T, at string, properties, values map[string]any) {
	t.Helper()
	for name, p := range properties {
		value, ok := values[name]
		if !ok && at+name != "global" {
			t.Errorf("%s%s has no default in values.yaml", at, name)
		}
		if below, ok := p.(map[string]any)["properties"].(map[string]any); ok && value != nil {
			compareNames(t, at+name+".", below, value.(map[string]any))
		}
	}
	for name := range values {
		if _, ok := properties[name]; !ok {
			t.Errorf("%s%s is not in values.schema.json", at, name)
		}
	}
}

func TestHooksComeFirstByWeight(t *testing.T) {
	all, err := objects(map[string]string{
		"c/templates/a.yaml":    "kind: A\n---\n# only a comment\n---\nkind: B\nmetadata: {annotations: {helm.sh/hook: pre-install}}",
		"c/templates/b.yaml":    "kind: C\nmetadata: {annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: \"-1\"}}",
		"c/templates/NOTES.txt": "kind: D",
	})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range all {
		kinds = append(kinds, o.Kind)
	}
	if d := cmp.Diff([]string{"C", "B", "A"}, kinds); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Kustomize's files are the chart with its defaults.
func TestBaseIsInStep(t *testing.T) {
	system, functions, err := Base(folder)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"base/skipper.yaml": system, "function-namespace/skipper.yaml": functions} {
		got, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("deploy/%s is not what the chart gives: run make manifests (-want +got):\n%s", file, d)
		}
	}
	if strings.Contains(functions, "namespace: functions") {
		t.Error("the files of a function namespace name one")
	}
}

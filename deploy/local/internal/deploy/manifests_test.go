package deploy

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"skipper/deploy/local/internal/chart"
)

// manifest is what these tests look at.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Replicas       int
		MaxUnavailable int
		PodSelector    selector
		PolicyTypes    []string
		Ingress        []rule
		Template       struct{ Spec podSpec }
	}
}

type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []map[string]string
}

type rule struct {
	From []struct {
		PodSelector       selector
		NamespaceSelector selector
	}
	Ports []struct{ Port int }
}

type podSpec struct {
	TopologySpreadConstraints []struct{ TopologyKey string }
	Containers                []struct {
		Name         string
		Args         []string
		Env          []struct{ Name, Value string }
		VolumeMounts []struct{ Name, MountPath string }
	}
	Volumes []struct {
		Name   string
		Secret struct{ SecretName string }
	}
}

// rendered is the chart with these values, by kind and name.
func rendered(t *testing.T, values map[string]any) map[string]manifest {
	t.Helper()
	objects, err := chart.Render("../../../helm/skipper", systemNamespace, values)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]manifest{}
	for _, o := range objects {
		var m manifest
		if err := yaml.Unmarshal([]byte(o.Text), &m); err != nil {
			t.Fatalf("%s %s: %v", o.Kind, o.Name, err)
		}
		out[o.Kind+" "+o.Name] = m
	}
	return out
}

// callers lists who may connect, as "labels -> ports"; the namespace stands before the labels.
func (m manifest) callers() []string {
	var out []string
	for _, r := range m.Spec.Ingress {
		var ports []string
		for _, p := range r.Ports {
			ports = append(ports, strconv.Itoa(p.Port))
		}
		to := " -> " + strings.Join(ports, ",")
		if len(r.From) == 0 {
			out = append(out, "anybody"+to)
		}
		for _, f := range r.From {
			out = append(out, labels(f.NamespaceSelector)+"/"+labels(f.PodSelector)+to)
		}
	}
	slices.Sort(out)
	return out
}

func labels(s selector) string {
	var out []string
	for k, v := range s.MatchLabels {
		out = append(out, k+"="+v)
	}
	return strings.Join(out, ",")
}

// Only those who have business there reach a port.
func TestPoliciesAdmitTheLeast(t *testing.T) {
	system := rendered(t, nil)
	edge := rendered(t, map[string]any{"gateway": map[string]any{"mode": "sidecar", "namespaces": []any{"edge"}}})
	const name, metrics, own = "app.kubernetes.io/name=", "skipper/metrics=allowed/", "kubernetes.io/metadata.name=skipper-system/"
	const outside = "kubernetes.io/metadata.name=edge/skipper/gateway=true"
	for _, row := range []struct {
		policy manifest
		pods   selector
		want   []string
	}{
		{system["NetworkPolicy skipper-default"], selector{}, nil},
		{system["NetworkPolicy skipper-controller"], selector{MatchLabels: map[string]string{"app.kubernetes.io/name": "skipper-controller"}}, []string{
			"/" + name + "skipper-controller -> 50051", "/" + name + "skipper-envoy -> 50051", metrics + " -> 8080",
		}},
		{system["NetworkPolicy skipper-envoy"], selector{MatchLabels: map[string]string{"app.kubernetes.io/name": "skipper-envoy"}}, []string{
			"anybody -> 10000", metrics + " -> 9902,8081",
		}},
		{system["NetworkPolicy skipper-functions"], selector{MatchExpressions: []map[string]string{{"key": "skipper/deployment", "operator": "Exists"}}}, []string{
			own + name + "skipper-controller -> ", own + name + "skipper-envoy -> ",
		}},
		{edge["NetworkPolicy skipper-controller"], selector{MatchLabels: map[string]string{"app.kubernetes.io/name": "skipper-controller"}}, []string{
			"/" + name + "skipper-controller -> 50051", outside + " -> 50051", metrics + " -> 8080",
		}},
		{edge["NetworkPolicy skipper-functions"], selector{MatchExpressions: []map[string]string{{"key": "skipper/deployment", "operator": "Exists"}}}, []string{
			outside + " -> ", own + name + "skipper-controller -> ",
		}},
	} {
		m := row.policy
		if d := cmp.Diff(row.want, m.callers()); d != "" || !slices.Equal(m.Spec.PolicyTypes, []string{"Ingress"}) {
			t.Errorf("%s: types %v, callers (-want +got):\n%s", m.Metadata.Name, m.Spec.PolicyTypes, d)
		}
		if d := cmp.Diff(row.pods, m.Spec.PodSelector); d != "" {
			t.Errorf("%s: pods (-want +got):\n%s", m.Metadata.Name, d)
		}
	}
}

// Each container has the certificate of its role and no other, and none speaks plaintext.
func TestContainersHaveTheirCertificate(t *testing.T) {
	system := rendered(t, nil)
	for container, row := range map[string]struct{ deployment, secret string }{
		"controller": {"skipper-controller", "skipper-tls-controller"},
		"envoy":      {"skipper-envoy", "skipper-tls-envoy"},
		"extproc":    {"skipper-envoy", "skipper-tls-extproc"},
	} {
		spec := system["Deployment "+row.deployment].Spec.Template.Spec
		if got := spec.tlsSecrets(container); !slices.Equal(got, []string{row.secret}) {
			t.Errorf("%s mounts %v, want %s", container, got, row.secret)
		}
		for _, c := range spec.Containers {
			for _, e := range c.Env {
				if strings.Contains(e.Name, "PLAINTEXT") {
					t.Errorf("%s has %s", c.Name, e.Name)
				}
			}
		}
	}
}

// tlsSecrets are the Secrets with certificates that a container can read.
func (s podSpec) tlsSecrets(container string) []string {
	var out []string
	for _, c := range s.Containers {
		for _, m := range c.VolumeMounts {
			for _, v := range s.Volumes {
				if c.Name == container && v.Name == m.Name && strings.HasPrefix(v.Secret.SecretName, "skipper-tls-") {
					out = append(out, v.Secret.SecretName)
				}
			}
		}
	}
	return out
}

func TestControllersSurviveANode(t *testing.T) {
	system := rendered(t, nil)
	d := system["Deployment skipper-controller"].Spec
	if d.Replicas < 2 || len(d.Template.Spec.TopologySpreadConstraints) == 0 {
		t.Errorf("%d replicas, spread %v", d.Replicas, d.Template.Spec.TopologySpreadConstraints)
	}
	if got := system["PodDisruptionBudget skipper-controller"].Spec.MaxUnavailable; got != 1 {
		t.Errorf("%d may be unavailable, want 1", got)
	}
}

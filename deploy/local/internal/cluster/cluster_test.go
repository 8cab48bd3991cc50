package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func refs() map[string]string {
	return map[string]string{"pause": "p:1", "coredns": "c:1", "metrics-server": "m:1"}
}

func node(t *testing.T) Node {
	t.Helper()
	return DefaultNode(t.TempDir(), t.TempDir())
}

func TestConfigurationIsRenderedWhole(t *testing.T) {
	n := node(t)
	if err := n.writeConfig(refs()); err != nil {
		t.Fatal(err)
	}
	for file, words := range map[string][]string{
		"containerd.toml":        {n.State, n.Programs, `"p:1"`},
		"kubelet.yaml":           {"address: 10.244.0.1", "enabled: false", "maxPods: 250"},
		"cni/10-bridge.conflist": {`"10.244.0.0/22"`, `"kcni0"`},
	} {
		content, err := os.ReadFile(filepath.Join(n.State, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range append(words, "") {
			if !strings.Contains(string(content), w) || strings.Contains(string(content), "{{") {
				t.Errorf("%s lacks %q or is not filled in:\n%s", file, w, content)
			}
		}
	}
}

func TestConfigurationParses(t *testing.T) {
	n := node(t)
	kubelet, err := n.render("config/kubelet.yaml", refs())
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Authentication struct{ Anonymous struct{ Enabled bool } }
	}
	if err := yaml.UnmarshalStrict(kubelet, &map[string]any{}); err != nil {
		t.Error(err)
	}
	if err := yaml.Unmarshal(kubelet, &parsed); err != nil || parsed.Authentication.Anonymous.Enabled {
		t.Errorf("kubelet open to anonymous users: %+v, %v", parsed, err)
	}
	bridge, err := n.render("config/10-bridge.conflist", refs())
	if err != nil || !json.Valid(bridge) {
		t.Errorf("bridge configuration is no JSON: %v", err)
	}
}

func TestManifestsNameTheImages(t *testing.T) {
	manifests, err := node(t).manifests(refs())
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"c:1", "m:1", "clusterIP: 10.96.0.10"} {
		if !strings.Contains(string(manifests), ref) {
			t.Errorf("manifests lack %s", ref)
		}
	}
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		if err := yaml.UnmarshalStrict([]byte(document), &map[string]any{}); err != nil {
			t.Errorf("%v in\n%s", err, document)
		}
	}
}

func TestMissingImageIsAnError(t *testing.T) {
	if _, err := node(t).manifests(map[string]string{"coredns": "c:1"}); err == nil {
		t.Error("no error for a manifest whose image is unknown")
	}
}

func TestIdentityFollowsFlagsFilesAndProgram(t *testing.T) {
	n := node(t)
	if err := n.writeConfig(refs()); err != nil {
		t.Fatal(err)
	}
	identity := func(n Node) string {
		id, err := n.identity(n.component("kubelet"))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	base := identity(n)
	if again := identity(n); again != base {
		t.Errorf("equal node gives %s and %s", base, again)
	}
	renamed := n
	renamed.Name = "node2"
	if identity(renamed) == base {
		t.Error("another node name leaves the identity as it was")
	}
	if err := os.WriteFile(filepath.Join(n.State, "kubelet.yaml"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	edited := identity(n)
	if edited == base {
		t.Error("another configuration leaves the identity as it was")
	}
	if err := os.Symlink("/bin/sh", n.program("kube")); err != nil {
		t.Fatal(err)
	}
	if identity(n) == edited {
		t.Error("another program leaves the identity as it was")
	}
}

func TestEveryComponentIsComplete(t *testing.T) {
	n := node(t)
	for _, name := range startOrder() {
		c := n.component(name)
		if len(c.argv) == 0 || (c.health == "") != (name == "containerd") {
			t.Errorf("%s: %+v", name, c)
		}
		if len(n.ports(name)) == 0 && name != "containerd" {
			t.Errorf("%s has no ports", name)
		}
	}
}

func TestNothingListensOnEveryInterface(t *testing.T) {
	n := node(t)
	for _, name := range startOrder() {
		for _, port := range n.ports(name) {
			if !strings.HasPrefix(port, "127.0.0.1:") && !strings.HasPrefix(port, "10.244.0.1:") {
				t.Errorf("%s listens on %s", name, port)
			}
		}
	}
}

func TestPKIIsMadeOnce(t *testing.T) {
	n := node(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := n.writePKI(now); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(n.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.writePKI(now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(n.Kubeconfig())
	if err != nil || !slices.Equal(first, second) {
		t.Errorf("kubeconfig changed on the second call (%v)", err)
	}
	if err := yaml.UnmarshalStrict(first, &map[string]any{}); err != nil {
		t.Error(err)
	}
}

func TestHasCondition(t *testing.T) {
	tests := map[string]struct {
		object string
		want   bool
		ok     bool
	}{
		"true":      {`{"status":{"conditions":[{"type":"Other","status":"False"},{"type":"Ready","status":"True"}]}}`, true, true},
		"false":     {`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, false, true},
		"absent":    {`{"status":{}}`, false, true},
		"no object": {`<html>`, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := hasCondition([]byte(test.object), "Ready")
			if got != test.want || (err == nil) != test.ok {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

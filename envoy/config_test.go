package envoy_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

func build(t testing.TB, c envoy.Config) *bootstrapv3.Bootstrap {
	t.Helper()
	b, err := envoy.Bootstrap(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func render(t testing.TB, b *bootstrapv3.Bootstrap) []byte {
	t.Helper()
	text, err := envoy.YAML(b)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDefaultFilesAreGolden(t *testing.T) {
	t.Parallel()
	files, err := envoy.Secrets(envoy.Default())
	if err != nil {
		t.Fatal(err)
	}
	files["default.yaml"] = render(t, build(t, envoy.Default()))
	for name, got := range files {
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs, run with -update if that is meant (-want +got):\n%s", name, diff)
		}
	}
}

// configs are whole and must be taken by Envoy.
func configs() map[string]envoy.Config {
	edit := func(f func(*envoy.Config)) envoy.Config {
		c := envoy.Default()
		f(&c)
		return c
	}
	return map[string]envoy.Config{
		"default":     envoy.Default(),
		"IPv6 alone":  edit(func(c *envoy.Config) { c.HTTPAddress = "::1" }),
		"named node":  edit(func(c *envoy.Config) { c.NodeID, c.NodeCluster = "a", "b" }),
		"admin IPv6":  edit(func(c *envoy.Config) { c.Admin = "[::1]:9901" }),
		"admin file":  edit(func(c *envoy.Config) { c.Admin = "/run/skipper/admin.sock" }),
		"extproc TCP": edit(func(c *envoy.Config) { c.Extproc = "[::1]:9000" }),
		"controller IP": edit(func(c *envoy.Config) {
			c.ControllerHost, c.ControllerWait, c.LoadReports = "fd00::1", ms(1), false
		}),
		"behind proxies": edit(func(c *envoy.Config) { c.TrustedHops = 2 }),
		"no upgrades":    edit(func(c *envoy.Config) { c.Upgrades = nil }),
		"no time limits": edit(func(c *envoy.Config) { c.StreamIdleTimeout, c.ConnectionIdleTimeout, c.RequestHeadersTimeout = 0, 0, 0 }),
		"least": edit(func(c *envoy.Config) {
			c.MaxConnections, c.MaxRequestHeadersKiB, c.BufferLimit, c.RetryBuffer = 1, 10, 16<<10, 16<<10
		}),
		"most": edit(func(c *envoy.Config) {
			c.MaxConnections, c.MaxRequestHeadersKiB, c.BufferLimit, c.RetryBuffer = 1<<31-1, 8192, 1<<30, 1<<30
		}),
		"log nothing": edit(func(c *envoy.Config) { c.AccessLog, c.ClusterStats = envoy.AccessLogOff, true }),
		"log all":     edit(func(c *envoy.Config) { c.AccessLog = envoy.AccessLogAll }),
		"listeners": edit(func(c *envoy.Config) {
			c.Listeners = []envoy.Listener{{Name: "public", Port: 10001}, {Name: "partner_2", Port: 10002}}
		}),
		"trace context": edit(func(c *envoy.Config) { c.ForwardTrace = true }),
	}
}

func TestEnvoyTakesBootstrapWithoutWarning(t *testing.T) {
	t.Parallel()
	for name, c := range configs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, _ := withTLS(t, c)
			envoytest.Validate(t, build(t, c))
		})
	}
}

// What an Envoy has itself is left out, and nothing else.
func TestPartsLeaveOutWhatIsNotSkippers(t *testing.T) {
	t.Parallel()
	parts, whole := build(t, configs()["named node"]), build(t, configs()["named node"])
	envoy.Parts(parts)
	if parts.Node != nil || parts.Admin != nil || parts.OverloadManager != nil || parts.StatsConfig != nil {
		t.Error("the parts hold what every Envoy has itself")
	}
	var got, want []string
	for _, b := range []*bootstrapv3.Bootstrap{parts, whole} {
		var names []string
		for _, l := range b.StaticResources.Listeners {
			names = append(names, l.Name)
		}
		for _, c := range b.StaticResources.Clusters {
			names = append(names, c.Name)
		}
		got, want = want, names
	}
	want = slices.DeleteFunc(want, func(name string) bool { return name == "ready" || name == "admin" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listeners and clusters (-want +got):\n%s", diff)
	}
	whole.Node, whole.Admin, whole.OverloadManager, whole.StatsConfig = nil, nil, nil, nil
	whole.StaticResources, parts.StaticResources = nil, nil
	if !proto.Equal(whole, parts) {
		t.Error("the parts lack something of the whole")
	}
}

func TestYAMLKeepsTheWholeBootstrap(t *testing.T) {
	t.Parallel()
	for name, c := range configs() {
		b := build(t, c)
		text := render(t, b)
		if !bytes.Equal(text, render(t, build(t, c))) {
			t.Errorf("%s: equal configs give different files", name)
		}
		asJSON, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		var back bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(asJSON, &back); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// Packed messages hold maps whose order is free on the wire, so the
		// text of both is compared.
		if !bytes.Equal(text, render(t, &back)) || !proto.Equal(b.GetNode(), back.GetNode()) {
			t.Errorf("%s: the file does not hold the whole bootstrap", name)
		}
	}
}

// Every spelling of all addresses takes IPv4 as well.
func TestAllAddressesAreOfBothFamilies(t *testing.T) {
	t.Parallel()
	for ip, both := range map[string]bool{"::": true, "0:0:0:0:0:0:0:0": true, "0.0.0.0": false, "127.0.0.1": false, "::1": false} {
		c := envoy.Default()
		c.HTTPAddress = ip
		for _, l := range build(t, c).StaticResources.Listeners {
			a := l.GetAddress().GetSocketAddress()
			if l.Name == "ingress" && (a.Address != ip || a.Ipv4Compat != both) || l.Name == "ready" && !a.Ipv4Compat {
				t.Errorf("with HTTPAddress %s, %s listens at %v", ip, l.Name, a)
			}
		}
	}
}

func TestValidateReportsAllProblems(t *testing.T) {
	t.Parallel()
	err := envoy.Config{}.Validate()
	if err == nil {
		t.Fatal("the zero Config is valid")
	}
	for _, field := range []string{
		"HTTPAddress", "HTTPPort", "ReadyPort", "ControllerPort", "Admin", "Extproc", "ControllerHost", "HoldTimeout", "MessageTimeout",
		"MaxConnections", "MaxRequestHeadersKiB", "BufferLimit", "RetryBuffer", "AccessLog", "TLSDir", "SecretsDir",
	} {
		if !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s is not mentioned in:\n%v", field, err)
		}
	}
}

func TestValidateFindsEachProblem(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		field string
		edit  func(*envoy.Config)
	}{
		{"ReadyPort", func(c *envoy.Config) { c.ReadyPort = c.HTTPPort }},
		{"Admin", func(c *envoy.Config) { c.Admin = "127.0.0.1:10000" }},
		{"Admin", func(c *envoy.Config) { c.Admin = "0.0.0.0:9901" }},
		{"Admin", func(c *envoy.Config) { c.Admin = "[::]:9901" }},
		{"Admin", func(c *envoy.Config) { c.Admin = "10.0.0.1:9901" }},
		{"Admin", func(c *envoy.Config) { c.Admin = "localhost:9901" }},
		{"Admin", func(c *envoy.Config) { c.Admin = "127.0.0.1:0" }},
		{"Admin", func(c *envoy.Config) { c.Admin = "/run/../admin.sock" }},
		{"Extproc", func(c *envoy.Config) { c.Extproc = "run/extproc.sock" }},
		{"Extproc", func(c *envoy.Config) { c.Extproc = "/" + strings.Repeat("a", 107) }},
		{"ControllerHost", func(c *envoy.Config) { c.ControllerHost = "http://controller" }},
		{"TLSDir", func(c *envoy.Config) { c.TLSDir = "tls" }},
		{"SecretsDir", func(c *envoy.Config) { c.SecretsDir = "/etc/envoy/" }},
		{"HoldTimeout", func(c *envoy.Config) { c.HoldTimeout = -1 }},
		{"MessageTimeout", func(c *envoy.Config) { c.MessageTimeout = 1 }},
		{"ControllerWait", func(c *envoy.Config) { c.ControllerWait = -1 }},
		{"StreamIdleTimeout", func(c *envoy.Config) { c.StreamIdleTimeout = c.HoldTimeout }},
		{"ConnectionIdleTimeout", func(c *envoy.Config) { c.ConnectionIdleTimeout = -1 }},
		{"RequestHeadersTimeout", func(c *envoy.Config) { c.RequestHeadersTimeout = -1 }},
		{"MaxConnections", func(c *envoy.Config) { c.MaxConnections = 1 << 31 }},
		{"MaxRequestHeadersKiB", func(c *envoy.Config) { c.MaxRequestHeadersKiB = 8193 }},
		{"BufferLimit", func(c *envoy.Config) { c.BufferLimit = 1<<30 + 1 }},
		{"RetryBuffer", func(c *envoy.Config) { c.RetryBuffer = 16<<10 - 1 }},
		{"AccessLog", func(c *envoy.Config) { c.AccessLog = "some" }},
		{"Upgrades", func(c *envoy.Config) { c.Upgrades = []string{"a", "A"} }},
		{"Upgrades", func(c *envoy.Config) { c.Upgrades = []string{""} }},
		{"HTTPAddress", func(c *envoy.Config) { c.HTTPAddress = "localhost" }},
		{"HTTPAddress", func(c *envoy.Config) { c.HTTPAddress = "127.0.0.1:80" }},
		{"HTTPAddress", func(c *envoy.Config) { c.HTTPAddress = "::ffff:127.0.0.1" }},
		{"HTTPAddress", func(c *envoy.Config) { c.HTTPAddress = "fe80::1%eth0" }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "ingress", Port: 1}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "second_pass", Port: 1}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "Public", Port: 1}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "a", Port: 1}, {Name: "a", Port: 2}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "a", Port: 1}, {Name: "b", Port: 1}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "a", Port: c.HTTPPort}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "a", Port: 9901}} }},
		{"Listeners", func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "a"}} }},
		{"not UTF-8", func(c *envoy.Config) { c.NodeID = "\xff" }},
	} {
		c := envoy.Default()
		row.edit(&c)
		b, err := envoy.Bootstrap(c)
		if err == nil || b != nil || !strings.Contains(err.Error(), row.field) {
			t.Errorf("%s: error is %v", row.field, err)
		}
	}
}

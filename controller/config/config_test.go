package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the golden files anew")

func parse(t *testing.T, env map[string]string, args ...string) (*Config, *pflag.FlagSet, error) {
	t.Helper()
	c, fs := Default(), pflag.NewFlagSet("controller", pflag.ContinueOnError)
	c.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, fs, FromEnv(fs, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func valid() *Config {
	c := Default()
	c.Namespace, c.PodIP, c.FunctionNamespaces, c.PasetoPrivateKeyFile = "skipper-system", "10.0.0.1", []string{"functions"}, "key.pem"
	c.InsecurePlaintext = true
	return c
}

func TestHelpIsAsPinned(t *testing.T) {
	_, fs, _ := parse(t, nil)
	got, path := fs.FlagUsagesWrapped(120), filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("help (-want +got), pin it with -update:\n%s", diff)
	}
}

func TestFlagBeatsVariableBeatsDefault(t *testing.T) {
	env := map[string]string{
		"SKIPPER_PORT": "6000", "SKIPPER_WEB_PORT": "tcp://10.0.0.9:80", "SKIPPER_SCALE_INTERVAL": "3s",
		"SKIPPER_FUNCTION_NAMESPACES": "a,b", "SKIPPER_SINGLE_CONTROLLER_MODE": "true",
	}
	c, _, err := parse(t, env, "--scale-interval=7s")
	if err != nil {
		t.Fatal(err)
	}
	if c.Port != 6000 || c.WebPort != 8080 || c.ScaleInterval != 7*time.Second || !c.SingleControllerMode || strings.Join(c.FunctionNamespaces, "|") != "a|b" {
		t.Errorf("got %+v", c)
	}
}

func TestUnreadableVariablesAreAllReported(t *testing.T) {
	_, _, err := parse(t, map[string]string{"SKIPPER_PORT": "x", "SKIPPER_DRAIN_TIMEOUT": "5"})
	if err == nil || !strings.Contains(err.Error(), "SKIPPER_PORT") || !strings.Contains(err.Error(), "SKIPPER_DRAIN_TIMEOUT") {
		t.Errorf("FromEnv = %v, want both variables named", err)
	}
}

func TestValidateFieldByField(t *testing.T) {
	tests := []struct{ flag, value string }{
		{"host", "localhost"},
		{"shutdown-timeout", "-1s"},
		{"namespace", ""},
		{"pod-ip", ""},
		{"pod-ip", "pod"},
		{"hash-ring-wait-time", "-1s"},
		{"insecure-plaintext", "false"},
		{"kubeconfig-qps", "0"},
		{"kubeconfig-burst", "0"},
		{"function-namespaces", ""},
		{"function-namespaces", "Bad"},
		{"function-namespaces", "a,a"},
		{"function-assign-path", "assign"},
		{"function-assign-path", "/a?b"},
		{"function-assign-timeout", "0s"},
		{"paseto-private-key", "and the file"},
		{"heartbeat-timeout", "0s"},
		{"scale-interval", "0s"},
		{"hpa-tolerance", "1"},
		{"hpa-tolerance", "-0.1"},
		{"hpa-initial-readiness-delay", "-1s"},
		{"hpa-downscale-stabilization", "-1s"},
		{"max-concurrent-stale-replacements", "-1"},
		{"drain-timeout", "0s"},
		{"table-staleness", "0s"},
		{"pool-reserve", "1"},
		{"log-level", "loud"},
		{"log-format", "xml"},
		{"otlp-endpoint", "collector:4317"},
	}
	for _, tt := range tests {
		c, fs := valid(), pflag.NewFlagSet("controller", pflag.ContinueOnError)
		c.AddFlags(fs)
		if err := fs.Set(tt.flag, tt.value); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--"+tt.flag+" is ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%q: Validate = %v, want exactly that flag named", tt.flag, tt.value, err)
		}
	}
	if err := valid().Validate(); err != nil {
		t.Errorf("Validate = %v, want the rest to be valid", err)
	}
}

func TestTLSContradictsPlaintext(t *testing.T) {
	c := valid()
	c.TLS.CA = "ca.crt"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--insecure-plaintext") {
		t.Errorf("Validate = %v", err)
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	err := Default().Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n != 5 {
		t.Errorf("%d problems, want the 5 required settings:\n%v", n, err)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	_, fs, _ := parse(t, map[string]string{"SKIPPER_PASETO_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----"})
	shown := map[string]string{}
	for _, v := range Values(fs) {
		shown[v.GetName()] = v.GetValue()
	}
	if shown["paseto-private-key"] != "***" || shown["paseto-private-key-file"] != "" || shown["port"] != "50051" {
		t.Errorf("shown %v", shown)
	}
}

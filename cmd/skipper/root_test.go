package main

import (
	"bytes"
	"flag"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"skipper/envoy"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// run executes the command as a person does and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot(realWorld())
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelpIsGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"skipper": "", "envoy": "envoy", "bootstrap": "envoy bootstrap", "issue": "tls issue",
		"functions": "functions", "instances": "instances", "describe": "describe", "describe-function": "describe function", "describe-instance": "describe instance",
		"events": "events", "pools": "pools", "doctor": "doctor", "invoke": "invoke", "scale": "scale", "drain": "drain", "release": "release",
		"token": "token", "verify": "token verify", "sign": "token sign", "keys": "keys", "rotate": "keys rotate",
		"provision": "provision", "purge": "purge",
	} {
		got, err := run(t, append(strings.Fields(args), "--help")...)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".help", got)
	}
}

func TestBootstrapWithoutFlagsIsTheDefault(t *testing.T) {
	t.Parallel()
	got, err := run(t, "envoy", "bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	b, err := envoy.Bootstrap(envoy.Default())
	if err != nil {
		t.Fatal(err)
	}
	want, err := envoy.YAML(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryFlagReachesTheConfig(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"--http-port=1", "--ready-port=2", "--admin-socket=/a", "--node-id=b", "--node-cluster=c", "--extproc-socket=/d",
		"--hold-timeout=1m", "--message-timeout=2s", "--controller-host=e", "--controller-port=3", "--controller-wait=4s",
		"--load-reports=false", "--trusted-hops=5", "--upgrades=f,g", "--stream-idle-timeout=6h", "--connection-idle-timeout=7m",
		"--request-headers-timeout=8s", "--max-connections=9", "--max-request-headers-kib=10", "--buffer-limit=11",
		"--access-log=ALL", "--cluster-stats", "--controller-plaintext", "--tls-dir=/h", "--secrets-dir=/i", "--listeners=a=1", "--forward-trace",
	} {
		t.Run(args, func(t *testing.T) {
			o, flags := newBootstrapOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
			o.addFlags(flags)
			if err := flags.Parse([]string{args}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(envoy.Default(), o.resolve()); diff == "" {
				t.Error("the flag changes nothing")
			}
		})
	}
}

func TestBootstrapNamesEveryProblem(t *testing.T) {
	t.Parallel()
	out, err := run(t, "envoy", "bootstrap", "--http-port=0", "--access-log=some", "--extproc-socket=x")
	if err == nil || out != "" {
		t.Fatalf("printed %q, error %v", out, err)
	}
	for _, field := range []string{"HTTPPort", "AccessLog", "Extproc"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not mentioned in: %v", field, err)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]*debug.BuildInfo{
		"skipper unknown":        nil,
		"skipper (devel) go1.99": {GoVersion: "go1.99"},
		"skipper v1.2.3 abc modified go1.99": {
			GoVersion: "go1.99", Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
		},
	} {
		if got := describe(info); got != want {
			t.Errorf("version is %q, want %q", got, want)
		}
	}
	if out, err := run(t, "version"); err != nil || !strings.HasPrefix(out, "skipper ") {
		t.Errorf("printed %q, error %v", out, err)
	}
}

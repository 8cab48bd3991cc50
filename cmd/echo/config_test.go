package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"skipper/function"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelpIsPinned(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand(nil)
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("help (-want +got):\n%s", diff)
	}
}

// parse reads arguments and an environment as the command does.
func parse(args []string, env map[string]string) (*config, error) {
	cfg := defaults()
	fs := pflag.NewFlagSet("echo", pflag.ContinueOnError)
	cfg.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	return cfg, fromEnv(fs, lookup)
}

func TestFlagsBeatEnvironmentBeatsDefaults(t *testing.T) {
	got, err := parse(
		[]string{"--listen=:1", "--public-key-file=a.pem", "--public-key-file", "b.pem", "--refuse-assignment"},
		map[string]string{
			"SKIPPER_ECHO_LISTEN": ":2", "SKIPPER_ECHO_POD_NAME": "p", "SKIPPER_ECHO_ASSIGN_DELAY": "2s",
			"SKIPPER_ECHO_ALLOW_CRASH": "true", "SKIPPER_ECHO_GRACE": "9s", "LISTEN": ":3",
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.server.Listen, want.server.Grace = ":1", 9*time.Second
	want.podName, want.assignDelay, want.allowCrash, want.refuseAssignment = "p", 2*time.Second, true, true
	want.publicKeyFiles = []string{"a.pem", "b.pem"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	fromList, err := parse(nil, map[string]string{"SKIPPER_ECHO_PUBLIC_KEY_FILE": "a.pem,b.pem"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.publicKeyFiles, fromList.publicKeyFiles); diff != "" {
		t.Errorf("key files (-want +got):\n%s", diff)
	}
}

func TestBadEnvironmentNamesTheVariables(t *testing.T) {
	_, err := parse(nil, map[string]string{"SKIPPER_ECHO_GRACE": "soon", "SKIPPER_ECHO_ALLOW_CRASH": "perhaps"})
	for _, want := range []string{"SKIPPER_ECHO_GRACE", "SKIPPER_ECHO_ALLOW_CRASH"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
}

func TestValidateReportsAllProblems(t *testing.T) {
	if err := defaults().validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	bad := &config{server: function.Server{StopDelay: 2, Grace: 1, IdleTimeout: -1}, assignDelay: -1, logLevel: "loud"}
	err := bad.validate()
	for _, want := range []string{"--listen", "--idle-timeout", "--assign-delay", "--stop-delay", "--log-level"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not speak of %s: %v", want, err)
		}
	}
	bad.server.Grace = -1
	if err := bad.validate(); err == nil || !strings.Contains(err.Error(), "--grace is -1ns") {
		t.Errorf("negative grace: %v", err)
	}
}

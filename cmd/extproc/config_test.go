package main

import (
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"skipper/envoy/envoytest"
)

var update = flag.Bool("update", false, "write testdata afresh")

func TestHelpIsGolden(t *testing.T) {
	cfg := defaults()
	fs := pflag.NewFlagSet("extproc", pflag.ContinueOnError)
	cfg.addFlags(fs)
	got := fs.FlagUsages()
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("help (-want +got), -update writes it afresh:\n%s", diff)
	}
}

// parsed is the config of a command line and an environment, and its faults.
func parsed(args []string, env map[string]string) (*config, error) {
	cfg := defaults()
	cfg.plaintext = true
	fs := pflag.NewFlagSet("extproc", pflag.ContinueOnError)
	cfg.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
	if err := fromEnv(fs, lookup); err != nil {
		return nil, err
	}
	cfg.complete(lookup, func() (string, error) { return env["HOSTNAME"], nil })
	return cfg, cfg.validate()
}

func TestFlagsBeatTheEnvironment(t *testing.T) {
	cfg, err := parsed([]string{"--hold-timeout=7s", "--controller-service-host=c"}, map[string]string{
		"SKIPPER_HOLD_TIMEOUT": "9s", "SKIPPER_CONTROLLER_PORT": "1234", "POD_IP": "10.0.0.1", "POD_NAME": "gateway-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.holdTimeout.String() != "7s" || cfg.controllerPort != 1234 || cfg.routerIP != "10.0.0.1" || cfg.envoyNodeID != "gateway-1" {
		t.Errorf("config is %+v", cfg)
	}
}

func TestDefaultsAreUsable(t *testing.T) {
	if _, err := parsed([]string{"--controller-service-host=c"}, map[string]string{"POD_IP": "10.0.0.1", "HOSTNAME": "h"}); err != nil {
		t.Error(err)
	}
	if _, err := parsed(nil, map[string]string{"SKIPPER_HOLD_TOTAL": "many"}); err == nil || !strings.Contains(err.Error(), "SKIPPER_HOLD_TOTAL") {
		t.Errorf("a variable that is no number: %v", err)
	}
}

func TestValidateFindsEachFault(t *testing.T) {
	good := []string{"--controller-service-host=c", "--router-ip=10.0.0.1", "--envoy-node-id=e"}
	for _, fault := range []string{
		"--controller-service-host=", "--controller-port=0", "--listen=relative", "--listen=host:1", "--socket-mode=9", "--socket-mode=7777",
		"--web-host=x", "--router-ip=", "--heartbeat-interval=0", "--hold-timeout=-1s", "--hold-per-function=0", "--hold-per-tenant=0", "--hold-total=0",
		"--max-round-trip-attempts=0", "--round-trip-backoff=0", "--max-round-trip-backoff=1ms", "--table-staleness=0", "--confirm-timeout=0", "--table-size=0",
		"--function-idle-timeout=0", "--lost-lease=0", "--header-cache-size=0", "--shutdown-timeout=0", "--gc-percent=-1", "--memory-limit-mib=-1",
		"--log-level=loud", "--log-format=xml", "--tls-cert-file=only-this",
		"--otlp-endpoint=collector:4317", "--function-audience=", "--require-signed-function=public", "--require-signed-function=A", "--allow-namespaces=A", "--allow-deployments=echo",
	} {
		name, _, _ := strings.Cut(fault, "=")
		if _, err := parsed(append(append([]string{}, good...), fault), nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", fault, err)
		}
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	_, err := parsed([]string{"--hold-timeout=0", "--log-format=xml", "--hold-total=0"}, nil)
	for _, want := range []string{"--controller-service-host", "--hold-timeout", "--log-format", "--hold-total", "--router-ip", "--envoy-node-id"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not reported: %v", want, err)
		}
	}
}

func TestSocketReplacesAStaleOne(t *testing.T) {
	place := filepath.Join(envoytest.SocketDir(t), "extproc.sock")
	if err := os.WriteFile(place, []byte("left over"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := listen(t.Context(), place, "0660")
	if err != nil {
		t.Fatal(err)
	}
	second, err := listen(t.Context(), place, "0666")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(place)
	if err != nil || info.Mode() != os.ModeSocket|0o666 {
		t.Fatalf("socket is %v, %v after the first listener closed", info.Mode(), err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", place)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(place))
	if err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

func TestListenNamesThePlace(t *testing.T) {
	for _, place := range []string{"/nowhere/at/all/s.sock", "192.0.2.1:1"} {
		if _, err := listen(t.Context(), place, "0666"); err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("listen on %s: %v", place, err)
		}
	}
}

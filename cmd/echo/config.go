package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"skipper/function"
)

// envPrefix stands before a flag's name in upper snake case.
const envPrefix = "SKIPPER_ECHO_"

// config is all that the command can be told.
type config struct {
	server     function.Server
	assignPath string
	logLevel   string

	// podName and podUID, when empty, come from POD_NAME and POD_UID as function.FromEnv says.
	podName, podUID string
	publicKeyFiles  []string
	acceptAnyToken  bool
	allowDirect     bool

	refuseAssignment bool
	refuseTenants    []string
	assignDelay      time.Duration
	ignoreInstance   bool
	allowCrash       bool
}

func defaults() *config {
	return &config{server: function.DefaultServer(), assignPath: function.DefaultAssignPath, logLevel: "info"}
}

func (c *config) addFlags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&c.server.Listen, "listen", c.server.Listen, "`address` for HTTP/1.1, h2c and gRPC")
	fs.StringVar(&c.podName, "pod-name", "", "this pod's `name` (default: POD_NAME, else the host name)")
	fs.StringVar(&c.podUID, "pod-uid", "", "this pod's `UID` (default: POD_UID, else what the token says)")
	fs.StringSliceVar(&c.publicKeyFiles, "public-key-file", nil,
		"PEM `file` of Ed25519 public keys for tokens, read at each assignment; repeatable (default: SKIPPER_PUBLIC_KEY_FILE; without any, every assignment is refused)")
	fs.BoolVar(&c.acceptAnyToken, "insecure-accept-any-token", false, "take any assignment without looking at its token; for a developer's machine")
	fs.BoolVar(&c.allowDirect, "allow-direct", false, "serve requests without x-skipper-instance, which did not come through Skipper")
	fs.StringVar(&c.assignPath, "assign-path", c.assignPath, "`path` of the assignment")
	fs.DurationVar(&c.server.StopDelay, "stop-delay", c.server.StopDelay, "time after SIGTERM in which new requests are taken in any case; 0 is none")
	fs.DurationVar(&c.server.Grace, "grace", c.server.Grace, "time after SIGTERM in which requests may end, --stop-delay included; then they are cut")
	fs.DurationVar(&c.server.IdleTimeout, "idle-timeout", c.server.IdleTimeout, "time after which an idle connection is closed; 0 is never")
	fs.StringVar(&c.logLevel, "log-level", c.logLevel, "debug, info, warn or error")
	fs.BoolVar(&c.refuseAssignment, "refuse-assignment", false, "test: answer every assignment with 500")
	fs.StringSliceVar(&c.refuseTenants, "refuse-tenant", nil, "test: answer the assignment of this `tenant` with 500 and take others; repeatable")
	fs.DurationVar(&c.assignDelay, "assign-delay", 0, "test: time before an assignment is answered")
	fs.BoolVar(&c.ignoreInstance, "ignore-instance", false, "test: play an image that serves whatever reaches it")
	fs.BoolVar(&c.allowCrash, "allow-crash", false, "test: let /crash end the process")
}

// fromEnv sets the flags that were not given from their variables.
func fromEnv(fs *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		value, ok := lookup(name)
		if !ok || f.Changed {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// validate reports all that is wrong at once, apart from what function.New checks.
func (c *config) validate() error {
	var errs []error
	if c.server.Listen == "" {
		errs = append(errs, errors.New("--listen is empty, want an address such as :8080"))
	}
	times := []struct {
		flag  string
		value time.Duration
	}{
		{"stop-delay", c.server.StopDelay},
		{"grace", c.server.Grace},
		{"idle-timeout", c.server.IdleTimeout},
		{"assign-delay", c.assignDelay},
	}
	for _, t := range times {
		if t.value < 0 {
			errs = append(errs, fmt.Errorf("--%s is %s, want at least 0", t.flag, t.value))
		}
	}
	if c.server.StopDelay > c.server.Grace {
		errs = append(errs, fmt.Errorf("--stop-delay %s is longer than --grace %s", c.server.StopDelay, c.server.Grace))
	}
	if _, err := zapcore.ParseLevel(c.logLevel); err != nil {
		errs = append(errs, fmt.Errorf("--log-level: %w", err))
	}
	return errors.Join(errs...)
}

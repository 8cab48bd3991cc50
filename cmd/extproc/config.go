package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"skipper/proto/identity"
	"skipper/proto/signed"
	"skipper/proto/tracing"
)

// envPrefix stands before a flag's name in upper snake case (contract section 4).
const envPrefix = "SKIPPER_"

// config is all that the command can be told. Durations of 0 are refused unless
// the help says what 0 means.
type config struct {
	controllerHost string
	controllerPort uint16
	tls            identity.Files
	plaintext      bool
	functions      functionTrust

	listen     string
	socketMode string
	webHost    string
	webPort    uint16

	lifecyclePort uint16 // 0: none
	envoyAdmin    string

	routerIP, envoyNodeID, zone string

	heartbeatInterval time.Duration
	holdTimeout       time.Duration
	holdPerFunction   int
	holdPerTenant     int
	holdTotal         int
	attempts          int
	backoff           time.Duration
	maxBackoff        time.Duration
	quarantine        time.Duration

	tableStaleness  time.Duration
	confirmTimeout  time.Duration
	functionIdle    time.Duration
	tableSize       int
	lostLease       time.Duration
	headerCacheSize int

	shutdownTimeout time.Duration
	gcPercent       int
	memoryLimitMiB  int
	otlpEndpoint    string // empty: that of the standard variables
	logLevel        string
	logFormat       string
}

// defaults are the contract's where it names them.
func defaults() *config {
	return &config{
		controllerPort: 50051, functions: functionTrust{audience: signed.DefaultAudience},
		listen: "/run/skipper/extproc.sock", socketMode: "0666", webHost: "0.0.0.0", webPort: 8081, envoyAdmin: "127.0.0.1:9901",
		heartbeatInterval: 5 * time.Second,
		holdTimeout:       30 * time.Second, holdPerFunction: 1000, holdPerTenant: 2000, holdTotal: 10_000,
		attempts: 6, backoff: 100 * time.Millisecond, maxBackoff: 5 * time.Second, quarantine: 10 * time.Second,
		tableStaleness: 5 * time.Minute, confirmTimeout: 30 * time.Second, functionIdle: 2 * time.Minute, tableSize: 20_000, lostLease: 5 * time.Minute,
		headerCacheSize: 16_384, shutdownTimeout: 5 * time.Second,
		gcPercent: 800, memoryLimitMiB: 512, logLevel: "info", logFormat: "json",
	}
}

func (c *config) addFlags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&c.controllerHost, "controller-service-host", "", "`name` or IP of the controllers; every address it resolves to is a replica (required)")
	fs.Uint16Var(&c.controllerPort, "controller-port", c.controllerPort, "gRPC `port` of the controllers, for calls and xDS")
	c.addTrustFlags(fs)
	c.addFunctionFlags(fs)
	fs.StringVar(&c.listen, "listen", c.listen, "where Envoy connects: the absolute path of a socket, which is replaced, or `ip:port`")
	fs.StringVar(&c.socketMode, "socket-mode", c.socketMode, "permissions of the socket, octal `mode`: Envoy may run as another user")
	fs.StringVar(&c.webHost, "web-host", c.webHost, "`IP` to serve /metrics, /healthz and /readyz on")
	fs.Uint16Var(&c.webPort, "web-port", c.webPort, "`port` to serve /metrics, /healthz and /readyz on; 0 is any")
	fs.Uint16Var(&c.lifecyclePort, "lifecycle-port", 0, "`port` on --web-host for preStop hooks: GET /drain answers when Envoy has no request in progress; let nobody but the kubelet reach it; 0 is none")
	fs.StringVar(&c.envoyAdmin, "envoy-admin", c.envoyAdmin, "Envoy's admin interface, asked by /drain: the absolute path of a socket, or `ip:port`")
	fs.StringVar(&c.routerIP, "router-ip", "", "`IP` of this pod in heartbeats (default: POD_IP)")
	fs.StringVar(&c.envoyNodeID, "envoy-node-id", "", "node `id` of the Envoy beside us, as in its load reports (default: POD_NAME, else the host name)")
	fs.StringVar(&c.zone, "zone", "", "`zone` that this pod is in: instances there are preferred unless they are far busier, where pods tell theirs; empty is none")
	c.addWaitFlags(fs)
	c.addProcessFlags(fs)
}

func (c *config) addWaitFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.heartbeatInterval, "heartbeat-interval", c.heartbeatInterval, "time between heartbeats; a function drops out after 3 idle ones")
	fs.DurationVar(&c.holdTimeout, "hold-timeout", c.holdTimeout, "how long a request waits for an instance at most; Envoy must be told the same")
	fs.IntVar(&c.holdPerFunction, "hold-per-function", c.holdPerFunction, "requests of one function that may wait; further ones get 429")
	fs.IntVar(&c.holdPerTenant, "hold-per-tenant", c.holdPerTenant, "requests of one tenant that may wait; further ones get 429")
	fs.IntVar(&c.holdTotal, "hold-total", c.holdTotal, "requests that may wait in all; further ones get 429")
	fs.IntVar(&c.attempts, "max-round-trip-attempts", c.attempts, "how often a request is sent to an instance at most, where Envoy cannot deliver it, and how often an instance is asked for again when the answer cannot be used")
	fs.DurationVar(&c.backoff, "round-trip-backoff", c.backoff, "first pause before an instance is asked for or tried again; it doubles")
	fs.DurationVar(&c.maxBackoff, "max-round-trip-backoff", c.maxBackoff, "longest pause before an instance is asked for or tried again")
	fs.DurationVar(&c.quarantine, "quarantine", c.quarantine, "how long an instance is avoided that two requests within that time did not reach")
	fs.DurationVar(&c.tableStaleness, "table-staleness", c.tableStaleness, "how long known instances are used without a synced controller")
	fs.DurationVar(&c.confirmTimeout, "confirm-timeout", c.confirmTimeout, "how long an instance is used that GetInstance named and no push has confirmed")
	fs.DurationVar(&c.functionIdle, "function-idle-timeout", c.functionIdle, "after how long without a request a function's instances are forgotten")
	fs.IntVar(&c.tableSize, "table-size", c.tableSize, "functions whose instances are kept; beyond, those without instances, and then the least recently used, are forgotten; controllers take heartbeats of 20000")
	fs.DurationVar(&c.lostLease, "lost-lease", c.lostLease, "how long a request counts as in progress whose stream broke; the controllers' --drain-timeout")
	fs.IntVar(&c.headerCacheSize, "header-cache-size", c.headerCacheSize, "read X-Skipper-Function headers to keep, and as many verified tokens; those over 4 KiB are not kept")
}

func (c *config) addProcessFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.shutdownTimeout, "shutdown-timeout", c.shutdownTimeout, "time after SIGTERM in which waiting requests may get their instance and running ones may end; running ones go on without us")
	fs.IntVar(&c.gcPercent, "gc-percent", c.gcPercent, "garbage collection target, as GOGC; that variable wins; 0 leaves Go's default")
	fs.IntVar(&c.memoryLimitMiB, "memory-limit-mib", c.memoryLimitMiB, "memory, in MiB, at which garbage is collected whatever the target; GOMEMLIMIT wins; 0 is none")
	fs.StringVar(&c.otlpEndpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector for spans of cold starts, such as http://collector:4317; else that of OTEL_EXPORTER_OTLP_ENDPOINT; without either nothing is traced")
	fs.StringVar(&c.logLevel, "log-level", c.logLevel, "debug, info, warn or error")
	fs.StringVar(&c.logFormat, "log-format", c.logFormat, "json or console")
}

// fromEnv sets the flags that were not given from their variables.
func fromEnv(fs *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
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

// complete fills what the pod says about itself.
func (c *config) complete(lookup func(string) (string, bool), hostname func() (string, error)) {
	if c.routerIP == "" {
		c.routerIP, _ = lookup("POD_IP")
	}
	if c.envoyNodeID == "" {
		c.envoyNodeID, _ = lookup("POD_NAME")
	}
	if c.envoyNodeID == "" {
		c.envoyNodeID, _ = hostname() // empty on error, which validate reports
	}
}

// validate reports all that is wrong at once.
func (c *config) validate() error {
	var errs []error
	if c.controllerHost == "" {
		errs = append(errs, errors.New("--controller-service-host is empty: set the controllers' service name"))
	}
	if c.controllerPort == 0 {
		errs = append(errs, errors.New("--controller-port is 0: set a port from 1 to 65535"))
	}
	if !strings.HasPrefix(c.listen, "/") {
		if _, err := netip.ParseAddrPort(c.listen); err != nil {
			errs = append(errs, fmt.Errorf("--listen %q is neither an absolute path nor ip:port", c.listen))
		}
	}
	if m, err := strconv.ParseUint(c.socketMode, 8, 32); err != nil || m > 0o777 {
		errs = append(errs, fmt.Errorf("--socket-mode %q is no octal mode such as 0660", c.socketMode))
	}
	if _, err := netip.ParseAddr(c.webHost); err != nil {
		errs = append(errs, fmt.Errorf("--web-host %q is no IP address", c.webHost))
	}
	if _, err := netip.ParseAddrPort(c.envoyAdmin); err != nil && !strings.HasPrefix(c.envoyAdmin, "/") {
		errs = append(errs, fmt.Errorf("--envoy-admin %q is neither an absolute path nor ip:port", c.envoyAdmin))
	}
	if _, err := netip.ParseAddr(c.routerIP); err != nil {
		errs = append(errs, fmt.Errorf("--router-ip %q is no IP address: set it, or POD_IP", c.routerIP))
	}
	if c.envoyNodeID == "" {
		errs = append(errs, errors.New("--envoy-node-id is empty: set Envoy's node id, or POD_NAME"))
	}
	return errors.Join(append(errs, c.tls.Validate(c.plaintext), c.functions.validate(), c.validateTimes(), c.validateCounts(), c.validateLog())...)
}

func (c *config) validateTimes() error {
	var errs []error
	for _, t := range []struct {
		flag  string
		value time.Duration
	}{
		{"heartbeat-interval", c.heartbeatInterval},
		{"hold-timeout", c.holdTimeout},
		{"round-trip-backoff", c.backoff},
		{"max-round-trip-backoff", c.maxBackoff},
		{"quarantine", c.quarantine},
		{"table-staleness", c.tableStaleness},
		{"confirm-timeout", c.confirmTimeout},
		{"function-idle-timeout", c.functionIdle},
		{"lost-lease", c.lostLease},
		{"shutdown-timeout", c.shutdownTimeout},
	} {
		if t.value <= 0 {
			errs = append(errs, fmt.Errorf("--%s is %s, want more than 0", t.flag, t.value))
		}
	}
	if c.backoff > c.maxBackoff {
		errs = append(errs, fmt.Errorf("--round-trip-backoff %s is above --max-round-trip-backoff %s", c.backoff, c.maxBackoff))
	}
	return errors.Join(errs...)
}

func (c *config) validateCounts() error {
	var errs []error
	for _, n := range []struct {
		flag       string
		value, min int
	}{
		{"hold-per-function", c.holdPerFunction, 1},
		{"hold-per-tenant", c.holdPerTenant, 1},
		{"hold-total", c.holdTotal, 1},
		{"max-round-trip-attempts", c.attempts, 1},
		{"table-size", c.tableSize, 1},
		{"header-cache-size", c.headerCacheSize, 1},
		{"gc-percent", c.gcPercent, 0},
		{"memory-limit-mib", c.memoryLimitMiB, 0},
	} {
		if n.value < n.min {
			errs = append(errs, fmt.Errorf("--%s is %d, want at least %d", n.flag, n.value, n.min))
		}
	}
	return errors.Join(errs...)
}

func (c *config) validateLog() error {
	var errs []error
	if err := tracing.CheckEndpoint(c.otlpEndpoint); err != nil {
		errs = append(errs, fmt.Errorf("--otlp-endpoint: %w", err))
	}
	if _, err := zapcore.ParseLevel(c.logLevel); err != nil {
		errs = append(errs, fmt.Errorf("--log-level: %w", err))
	}
	if c.logFormat != "json" && c.logFormat != "console" {
		errs = append(errs, fmt.Errorf("--log-format is %q, want json or console", c.logFormat))
	}
	return errors.Join(errs...)
}

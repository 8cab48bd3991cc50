// Package config is what the controller can be told: one flag per setting, an
// environment variable SKIPPER_<UPPER_SNAKE> for each, and defaults. A flag
// beats the variable, the variable beats the default.
//
// Names and defaults are those of contract section 4. Packages are given the
// few values that they need, never the Config.
package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
)

// Config holds all settings. Use Default, then AddFlags, FromEnv and Validate.
type Config struct {
	Host    string
	Port    uint16
	WebPort uint16
	// WebUI serves the web interface on the web port.
	WebUI bool
	// Namespace and PodIP are this replica's own.
	Namespace, PodIP string
	ShutdownTimeout  time.Duration

	// TLS is how this replica shows itself, and whom it trusts.
	TLS               identity.Files
	InsecurePlaintext bool

	Kubeconfig      string
	KubeconfigQPS   float32
	KubeconfigBurst int

	FunctionNamespaces      []string
	SkipForbiddenNamespaces bool
	FunctionAssignPath      string
	FunctionAssignTimeout   time.Duration
	PasetoPrivateKey        string
	PasetoPrivateKeyFile    string

	HashRingWaitTime     time.Duration
	SingleControllerMode bool
	ControllerSelector   string

	HeartbeatTimeout              time.Duration
	ScaleInterval                 time.Duration
	Tolerance                     float64
	InitialReadinessDelay         time.Duration
	DownscaleStabilization        time.Duration
	MaxConcurrentStaleReplacement int
	DrainTimeout                  time.Duration
	TableStaleness                time.Duration

	MaxInstancesLimit     uint32
	TenantClaimsPerMinute uint32
	PoolReserve           float64

	// OTLPEndpoint is the URL of the collector that spans go to; empty: that of
	// the standard variables.
	OTLPEndpoint string

	LogLevel, LogFormat string
}

// Default is the configuration without flags and variables; it lacks what is
// required.
func Default() *Config {
	return &Config{
		Host: "0.0.0.0", Port: 50051, WebPort: 8080, WebUI: true, ShutdownTimeout: 5 * time.Second,
		KubeconfigQPS: 100, KubeconfigBurst: 200,
		FunctionAssignPath: "/__skipper/assign", FunctionAssignTimeout: 30 * time.Second,
		HashRingWaitTime: 10 * time.Second, ControllerSelector: "app.kubernetes.io/name=skipper-controller",
		HeartbeatTimeout: 90 * time.Second, ScaleInterval: 15 * time.Second,
		Tolerance: 0.1, InitialReadinessDelay: 30 * time.Second, DownscaleStabilization: 90 * time.Second,
		MaxConcurrentStaleReplacement: 10, DrainTimeout: 5 * time.Minute, TableStaleness: 5 * time.Minute,
		MaxInstancesLimit: 1000, TenantClaimsPerMinute: 600,
		LogLevel: "info", LogFormat: "json",
	}
}

// AddFlags adds a flag for each setting, with the present value as default.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	c.addServingFlags(fs)
	c.addKubernetesFlags(fs)
	c.addFunctionFlags(fs)
	c.addScalingFlags(fs)
	c.addLimitFlags(fs)
	fs.StringVar(&c.OTLPEndpoint, "otlp-endpoint", c.OTLPEndpoint, "`URL` of an OpenTelemetry collector for spans of cold starts, such as http://collector:4317; else that of OTEL_EXPORTER_OTLP_ENDPOINT; without either nothing is traced")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "least `level` that is logged: debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of the log: json, or text for people")
}

func (c *Config) addServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Host, "host", c.Host, "`IP` to listen on, for gRPC, xDS and the web port")
	fs.Uint16Var(&c.Port, "port", c.Port, "`port` for gRPC and xDS; 0 is any that is free")
	fs.Uint16Var(&c.WebPort, "web-port", c.WebPort, "`port` for the web interface, /metrics, /healthz and /readyz over HTTP; 0 is any that is free")
	fs.BoolVar(&c.WebUI, "web-ui", c.WebUI, "serve the read-only web interface on the web port; whoever reaches that port sees the names of tenants, but no function's metadata")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", c.ShutdownTimeout, "`time` after SIGTERM in which calls, assignments and writes under way may end; 0 cuts them at once")
	fs.StringVar(&c.Namespace, "namespace", c.Namespace, "`namespace` that the controller itself runs in (required)")
	fs.StringVar(&c.PodIP, "pod-ip", c.PodIP, "`IP` of this controller's pod, by which it stands on the ring (required)")
	c.addTrustFlags(fs)
	fs.DurationVar(&c.HashRingWaitTime, "hash-ring-wait-time", c.HashRingWaitTime, "`time` that a call waits while no controller is on the ring; 0 does not wait")
	fs.BoolVar(&c.SingleControllerMode, "single-controller-mode", c.SingleControllerMode, "be alone on the ring, whatever other controllers there are")
	fs.StringVar(&c.ControllerSelector, "controller-selector", c.ControllerSelector, "`labels` by which the controllers' own pods are found, in --namespace")
}

func (c *Config) addTrustFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.TLS.Cert, "tls-cert-file", c.TLS.Cert, "PEM `file` of this controller's certificate, role controller; changed files are used by the next connection")
	fs.StringVar(&c.TLS.Key, "tls-key-file", c.TLS.Key, "PEM `file` of its key")
	fs.StringVar(&c.TLS.CA, "tls-ca-file", c.TLS.CA, "PEM `file` of the authorities that sign for callers and other controllers")
	fs.BoolVar(&c.InsecurePlaintext, "insecure-plaintext", c.InsecurePlaintext, "serve without TLS: whoever reaches the port may do everything, for every tenant")
}

func (c *Config) addKubernetesFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "`file` that says how to reach the API server; empty is the pod's own service account")
	fs.Float32Var(&c.KubeconfigQPS, "kubeconfig-qps", c.KubeconfigQPS, "background `requests` per second to the API server; claims are not counted and not held up")
	fs.IntVar(&c.KubeconfigBurst, "kubeconfig-burst", c.KubeconfigBurst, "background `requests` that may go beyond --kubeconfig-qps at once")
}

func (c *Config) addFunctionFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.FunctionNamespaces, "function-namespaces", c.FunctionNamespaces, "`namespaces` whose pools are managed, separated by commas (required)")
	fs.BoolVar(&c.SkipForbiddenNamespaces, "skip-forbidden-namespaces", c.SkipForbiddenNamespaces, "leave out, instead of failing, function namespaces that the controller may not watch")
	fs.StringVar(&c.FunctionAssignPath, "function-assign-path", c.FunctionAssignPath, "`path` of the assignment endpoint of function pods")
	fs.DurationVar(&c.FunctionAssignTimeout, "function-assign-timeout", c.FunctionAssignTimeout, "`time` that a pod may take to accept its assignment; an instance that is not ready after twice as long is deleted")
	fs.StringVar(&c.PasetoPrivateKey, "paseto-private-key", c.PasetoPrivateKey, "Ed25519 `key` that signs assignment tokens, PKCS#8 PEM; better its variable or the file")
	fs.StringVar(&c.PasetoPrivateKeyFile, "paseto-private-key-file", c.PasetoPrivateKeyFile, "`file` with that key")
}

func (c *Config) addScalingFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.HeartbeatTimeout, "heartbeat-timeout", c.HeartbeatTimeout, "`time` after which a function without heartbeats is scaled to zero, and an orphaned oneshot pod drained")
	fs.DurationVar(&c.ScaleInterval, "scale-interval", c.ScaleInterval, "`time` between two looks at a function's scale, give or take a tenth")
	fs.Float64Var(&c.Tolerance, "hpa-tolerance", c.Tolerance, "`share` by which CPU and memory may miss their target before the scale changes; 0 follows every change")
	fs.DurationVar(&c.InitialReadinessDelay, "hpa-initial-readiness-delay", c.InitialReadinessDelay, "`time` after it is ready in which an instance's CPU is not counted; 0 counts it from the start")
	fs.DurationVar(&c.DownscaleStabilization, "hpa-downscale-stabilization", c.DownscaleStabilization, "`time` whose highest recommendation a downscale does not go below; 0 follows every recommendation")
	fs.IntVar(&c.MaxConcurrentStaleReplacement, "max-concurrent-stale-replacements", c.MaxConcurrentStaleReplacement, "stale instances that this controller replaces at once; 0 replaces none")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "`time` after which a draining instance is deleted, even with requests in progress")
	fs.DurationVar(&c.TableStaleness, "table-staleness", c.TableStaleness, "`time` that extprocs use their table without a controller; must be theirs")
}

func (c *Config) addLimitFlags(fs *pflag.FlagSet) {
	fs.Uint32Var(&c.MaxInstancesLimit, "max-instances-limit", c.MaxInstancesLimit, "most that a function's max_instances may be; 0 is no limit")
	fs.Uint32Var(&c.TenantClaimsPerMinute, "tenant-claims-per-minute", c.TenantClaimsPerMinute, "pods that one tenant may claim per minute; 0 is no limit")
	fs.Float64Var(&c.PoolReserve, "pool-reserve", c.PoolReserve, "`share` of a pool, from 0 to below 1, that one tenant cannot take; 0 is none")
}

// envPrefix stands before a flag's name in upper snake case.
const envPrefix = "SKIPPER_"

// EnvName is the variable of a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnv sets the flags that were not given from their variables, and reports
// all that cannot be read. A variable that Kubernetes made for a Service, such
// as SKIPPER_PORT=tcp://..., is no setting and ignored.
func FromEnv(fs *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(EnvName(f.Name))
		if !ok || f.Changed || strings.HasPrefix(value, "tcp://") {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", EnvName(f.Name), err))
		}
	})
	return errors.Join(errs...)
}

// masked stands for a secret that is set.
const masked = "***"

// Values lists the settings of fs for GetClusterState, secrets masked.
func Values(fs *pflag.FlagSet) []*skipperpb.ConfigValue {
	var out []*skipperpb.ConfigValue
	fs.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if f.Name == "paseto-private-key" && value != "" {
			value = masked
		}
		out = append(out, &skipperpb.ConfigValue{Name: f.Name, Value: value, Description: f.Usage})
	})
	return out
}

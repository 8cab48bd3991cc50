package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"skipper/proto/tracing"
)

// Validate reports everything that is wrong at once; nil: usable. Whether the
// key can be read is not its concern.
func (c *Config) Validate() error {
	var p problems
	c.validateServing(&p)
	c.validateFunctions(&p)
	c.validateScaling(&p)
	if err := tracing.CheckEndpoint(c.OTLPEndpoint); err != nil {
		p.check(false, "otlp-endpoint", "wrong: %w", err)
	}
	p.check(slices.Contains([]string{"json", "text"}, c.LogFormat), "log-format", "%q: use json or text", c.LogFormat)
	_, err := zapcore.ParseLevel(c.LogLevel)
	p.check(err == nil, "log-level", "%q: use debug, info, warn or error", c.LogLevel)
	return errors.Join(p...)
}

// problems collects what is wrong.
type problems []error

func (p *problems) check(ok bool, flag, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf("--%s is "+format, append([]any{flag}, args...)...))
	}
}

func (p *problems) positive(flag string, d time.Duration) {
	p.check(d > 0, flag, "%s: use a time above 0", d)
}

func (p *problems) notNegative(flag string, d time.Duration) {
	p.check(d >= 0, flag, "%s: use 0 or a time above it", d)
}

func (c *Config) validateServing(p *problems) {
	_, err := netip.ParseAddr(c.Host)
	p.check(err == nil, "host", "%q: use an IP address", c.Host)
	p.notNegative("shutdown-timeout", c.ShutdownTimeout)
	p.check(c.Namespace != "", "namespace", "empty: set the namespace that the controller runs in")
	_, err = netip.ParseAddr(c.PodIP)
	p.check(err == nil, "pod-ip", "%q: set the IP address of the controller's pod", c.PodIP)
	if err := c.TLS.Validate(c.InsecurePlaintext); err != nil {
		*p = append(*p, err)
	}
	p.notNegative("hash-ring-wait-time", c.HashRingWaitTime)
	selector, err := labels.Parse(c.ControllerSelector)
	p.check(err == nil && !selector.Empty(), "controller-selector", "%q: use a label selector such as app.kubernetes.io/name=skipper-controller", c.ControllerSelector)
	p.check(c.KubeconfigQPS > 0, "kubeconfig-qps", "%v: use a number above 0", c.KubeconfigQPS)
	p.check(c.KubeconfigBurst > 0, "kubeconfig-burst", "%d: use a number above 0", c.KubeconfigBurst)
}

func (c *Config) validateFunctions(p *problems) {
	p.check(len(c.FunctionNamespaces) > 0, "function-namespaces", "empty: name at least one namespace")
	for i, ns := range c.FunctionNamespaces {
		errs := validation.IsDNS1123Label(ns)
		p.check(len(errs) == 0, "function-namespaces", "wrong at %q: %s", ns, strings.Join(errs, ", "))
		p.check(!slices.Contains(c.FunctionNamespaces[:i], ns), "function-namespaces", "naming %q twice: name it once", ns)
	}
	p.check(strings.HasPrefix(c.FunctionAssignPath, "/") && !strings.ContainsAny(c.FunctionAssignPath, " ?#"),
		"function-assign-path", "%q: use a path that begins with / and has no query", c.FunctionAssignPath)
	p.positive("function-assign-timeout", c.FunctionAssignTimeout)
	p.check((c.PasetoPrivateKey != "") != (c.PasetoPrivateKeyFile != ""), "paseto-private-key",
		"to be set, or --paseto-private-key-file, but not both")
}

func (c *Config) validateScaling(p *problems) {
	p.positive("heartbeat-timeout", c.HeartbeatTimeout)
	p.positive("scale-interval", c.ScaleInterval)
	p.check(c.Tolerance >= 0 && c.Tolerance < 1, "hpa-tolerance", "%v: use a share from 0 to below 1", c.Tolerance)
	p.notNegative("hpa-initial-readiness-delay", c.InitialReadinessDelay)
	p.notNegative("hpa-downscale-stabilization", c.DownscaleStabilization)
	p.check(c.MaxConcurrentStaleReplacement >= 0, "max-concurrent-stale-replacements", "%d: use 0 or more", c.MaxConcurrentStaleReplacement)
	p.positive("drain-timeout", c.DrainTimeout)
	p.positive("table-staleness", c.TableStaleness)
	p.check(c.PoolReserve >= 0 && c.PoolReserve < 1, "pool-reserve", "%v: use a share from 0 to below 1", c.PoolReserve)
}

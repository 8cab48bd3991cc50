package envoy

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// AccessLog chooses which requests are written to standard output as JSON.
type AccessLog string

// The values of AccessLog.
const (
	// AccessLogOff writes nothing.
	AccessLogOff AccessLog = "off"
	// AccessLogErrors writes answers of 500 and above, and those that were cut or ran out of time.
	AccessLogErrors AccessLog = "errors"
	// AccessLogAll writes every request; measure what it costs before using it in production.
	AccessLogAll AccessLog = "all"
)

// Listener is a port for clients whose requests extproc may treat by rules of
// their own.
type Listener struct {
	// Name is what extproc is told and what its --require-signed-function,
	// --allow-namespaces and --allow-deployments call the listener: lower-case
	// letters, digits, - and _, at most 63. It is in the access log, too.
	Name string
	// Port takes requests, at Config.HTTPAddress.
	Port uint16
}

// Config describes one gateway Envoy. Start from Default: the zero value is
// not usable. It is plain data and safe to copy.
type Config struct {
	// NodeID and NodeCluster say who this Envoy is to the controllers. Empty:
	// they come from Envoy's --service-node and --service-cluster, without
	// one of which it does not start.
	NodeID, NodeCluster string

	// HTTPAddress is the IP that takes clients' requests: 127.0.0.1 for those of
	// its own pod alone, 0.0.0.0 for IPv4, :: for all addresses of both families.
	HTTPAddress string
	// HTTPPort takes clients' requests, at HTTPAddress.
	HTTPPort uint16
	// Listeners are further ports for clients, alike but for their names. If
	// there are any, extproc is told by which listener a request came in,
	// HTTPPort being "ingress". The name travels as metadata of the ext_proc
	// stream (x-skipper-listener), which is no part of the request: clients
	// cannot set it. An Envoy with a configuration of its own does the same with
	// grpc_service.initial_metadata of each ext_proc filter.
	Listeners []Listener
	// ReadyPort answers GET /ready for probes and GET /metrics for Prometheus,
	// and nothing else, so it may be reachable where Admin must not be. It is on
	// all addresses of both families, for both come from outside of the pod.
	ReadyPort uint16
	// Admin is where the admin interface listens: a loopback ip:port, or the
	// absolute path of a socket. It can stop Envoy and shows every tenant's
	// endpoints, so any other address is refused.
	Admin string

	// Extproc is where extproc listens: the absolute path of a socket, or
	// ip:port. A sidecar on a socket is the supported form.
	Extproc string
	// HoldTimeout is how long extproc may hold a request for an instance; it
	// must be extproc's own --hold-timeout. Envoy allows 5 s more before it
	// goes on without an answer.
	HoldTimeout time.Duration
	// MessageTimeout is how long extproc may take to say that it will hold a
	// request. Zero is refused: a stuck extproc would hold requests for ever. On a
	// node without CPU to spare a healthy one may take a second; a dead one is
	// noticed at once, whatever this is.
	MessageTimeout time.Duration

	// ControllerHost is the name or IP of the controllers; every address it
	// resolves to is a replica. ControllerPort is their gRPC port.
	ControllerHost string
	ControllerPort uint16
	// ControllerWait bounds how long a starting Envoy stays closed and not
	// ready without an answer from a controller. Zero: as long as it takes,
	// so that an Envoy which knows no endpoint never takes traffic.
	ControllerWait time.Duration
	// ControllerPlaintext speaks to the controllers without TLS, as they must
	// do too (--insecure-plaintext): everybody on the network between can then
	// read and steer all tenants' traffic.
	ControllerPlaintext bool
	// TLSDir holds tls.crt, tls.key and ca.crt for the controllers, as Envoy
	// sees it. Files that change there are used by the next connection.
	TLSDir string
	// SecretsDir is where Envoy finds the files that Secrets returns.
	SecretsDir string
	// LoadReports makes Envoy report requests in progress per endpoint to the
	// controllers, which must serve the load reporting service.
	LoadReports bool

	// TrustedHops is how many proxies in front are trusted to have set the
	// forwarding headers. Zero: this Envoy is the edge and drops what clients
	// say about themselves.
	TrustedHops uint32
	// Upgrades are the protocols of the Upgrade header that are let through;
	// others get 403. CONNECT stands for that method. Letter case is ignored.
	Upgrades []string

	// StreamIdleTimeout ends a request or WebSocket on which nothing moved in
	// either direction for so long. Zero: never; only lost connections end it.
	StreamIdleTimeout time.Duration
	// ConnectionIdleTimeout closes a client's connection without requests.
	// Zero: never.
	ConnectionIdleTimeout time.Duration
	// RequestHeadersTimeout is how long a client may take to send the headers
	// of a request. Zero: for ever, which lets slow clients hold connections.
	RequestHeadersTimeout time.Duration

	// MaxConnections bounds the connections of clients; further ones are
	// closed at once. Zero is refused: Envoy would run out of descriptors.
	MaxConnections uint32
	// MaxRequestHeadersKiB bounds the headers of a request together, in KiB,
	// 1 to 8192; larger ones get 431. It must leave room for 8 KiB of function.
	MaxRequestHeadersKiB uint32
	// BufferLimit bounds what one connection keeps in memory, in bytes, at
	// least 16 KiB. Bodies of any size stream through it.
	BufferLimit uint32
	// RetryBuffer bounds what is kept of a request's body to send it again to
	// another pod, in bytes, at least 16 KiB, per request that extproc has sent
	// to a pod, until the answer is complete. It is also how far Envoy takes a
	// body in before there is a connection to the pod. A larger body streams
	// through all the same, but can be sent to one pod only.
	RetryBuffer uint32

	// AccessLog chooses which requests are logged.
	AccessLog AccessLog
	// ForwardTrace lets extproc see the trace context of requests (traceparent,
	// tracestate), for its own spans of cold starts. Pods get it either way.
	ForwardTrace bool
	// ClusterStats keeps Envoy's statistics of each cluster of pods. They cost
	// memory for hundreds of clusters; load reports do not need them.
	ClusterStats bool
}

// Default is the Config of a gateway pod as the manifests run it: extproc
// beside Envoy, controllers in skipper-system. Durations are the contract's
// where it names them.
func Default() Config {
	return Config{
		HTTPAddress:           everywhere,
		HTTPPort:              10000,
		ReadyPort:             9902,
		Admin:                 "127.0.0.1:9901",
		Extproc:               "/run/skipper/extproc.sock",
		HoldTimeout:           30 * time.Second,
		MessageTimeout:        3 * time.Second,
		ControllerHost:        "skipper-controller.skipper-system.svc.cluster.local",
		ControllerPort:        50051,
		TLSDir:                "/var/run/secrets/skipper/tls",
		SecretsDir:            "/etc/envoy",
		Upgrades:              []string{"websocket", "CONNECT", "tcp", "SPDY/3.1"},
		StreamIdleTimeout:     time.Hour,
		ConnectionIdleTimeout: time.Hour,
		RequestHeadersTimeout: 30 * time.Second,
		MaxConnections:        50_000,
		MaxRequestHeadersKiB:  60,
		BufferLimit:           256 << 10,
		RetryBuffer:           8 << 20,
		LoadReports:           true,
		AccessLog:             AccessLogErrors,
	}
}

// Limits of the values, with their reasons in the fields' comments.
const (
	minHeadersKiB = 10
	maxHeadersKiB = 8192
	minBuffer     = 16 << 10
	maxBuffer     = 1 << 30
)

// Validate reports every problem at once, each naming its field and what to
// do, or nil.
func (c Config) Validate() error {
	return errors.Join(c.validatePorts(), c.validatePlaces(), c.validateTimes(), c.validateLimits(), c.validateTexts())
}

// problem says what is wrong with a field.
func problem(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...))
}

func (c Config) validatePorts() error {
	var errs []error
	for _, p := range []struct {
		field string
		port  uint16
	}{{"HTTPPort", c.HTTPPort}, {"ReadyPort", c.ReadyPort}, {"ControllerPort", c.ControllerPort}} {
		if p.port == 0 {
			errs = append(errs, problem(p.field, "set a port from 1 to 65535"))
		}
	}
	if c.HTTPPort == c.ReadyPort {
		errs = append(errs, problem("ReadyPort", "%d is HTTPPort too, choose another", c.ReadyPort))
	}
	if admin, err := netip.ParseAddrPort(c.Admin); err == nil && (admin.Port() == c.HTTPPort || admin.Port() == c.ReadyPort) {
		errs = append(errs, problem("Admin", "port %d is taken by HTTPPort or ReadyPort, choose another", admin.Port()))
	}
	return errors.Join(append(errs, c.validateListeners())...)
}

var listenerPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (c Config) validateListeners() error {
	var errs []error
	names := map[string]bool{ingressName: true, secondPassName: true, readyName: true}
	ports := map[uint16]bool{0: true, c.HTTPPort: true, c.ReadyPort: true}
	if admin, err := netip.ParseAddrPort(c.Admin); err == nil {
		ports[admin.Port()] = true
	}
	for _, l := range c.Listeners {
		if !listenerPattern.MatchString(l.Name) || names[l.Name] {
			errs = append(errs, problem("Listeners", "%q is taken or no name; use lower-case letters, digits, - and _", l.Name))
		}
		if ports[l.Port] {
			errs = append(errs, problem("Listeners", "%q: port %d is 0 or taken, choose another", l.Name, l.Port))
		}
		names[l.Name], ports[l.Port] = true, true
	}
	return errors.Join(errs...)
}

func (c Config) validatePlaces() error {
	var errs []error
	if ip, err := netip.ParseAddr(c.HTTPAddress); err != nil || ip.Zone() != "" || ip.Is4In6() {
		errs = append(errs, problem("HTTPAddress", "%q is no IP; set 127.0.0.1 for this pod alone, or :: for all addresses", c.HTTPAddress))
	}
	if admin, err := parsePlace(c.Admin); err != nil {
		errs = append(errs, problem("Admin", "%w", err))
	} else if admin.path == "" && !admin.addr.Addr().IsLoopback() {
		errs = append(errs, problem("Admin", "%s is not a loopback address; tenants must not reach it", c.Admin))
	}
	if _, err := parsePlace(c.Extproc); err != nil {
		errs = append(errs, problem("Extproc", "%w", err))
	}
	if c.ControllerHost == "" || strings.ContainsAny(c.ControllerHost, " /") {
		errs = append(errs, problem("ControllerHost", "%q is neither a name nor an IP", c.ControllerHost))
	}
	return errors.Join(append(errs, c.validateFolders())...)
}

// validateFolders is about TLS: without it they do not matter.
func (c Config) validateFolders() error {
	if c.ControllerPlaintext {
		return nil
	}
	var errs []error
	for _, f := range []struct{ field, dir string }{{"TLSDir", c.TLSDir}, {"SecretsDir", c.SecretsDir}} {
		if !filepath.IsAbs(f.dir) || filepath.Clean(f.dir) != f.dir {
			errs = append(errs, problem(f.field, "%q is not a clean absolute path; set it, or ControllerPlaintext", f.dir))
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateTimes() error {
	var errs []error
	for _, d := range []struct {
		field string
		value time.Duration
		zero  bool // zero is allowed
	}{
		{"HoldTimeout", c.HoldTimeout, false},
		{"MessageTimeout", c.MessageTimeout, false},
		{"ControllerWait", c.ControllerWait, true},
		{"StreamIdleTimeout", c.StreamIdleTimeout, true},
		{"ConnectionIdleTimeout", c.ConnectionIdleTimeout, true},
		{"RequestHeadersTimeout", c.RequestHeadersTimeout, true},
	} {
		if d.value < 0 || d.value > 0 && d.value < time.Millisecond || d.value == 0 && !d.zero {
			errs = append(errs, problem(d.field, "%v is not a usable duration, at least 1ms is", d.value))
		}
	}
	if c.StreamIdleTimeout > 0 && c.StreamIdleTimeout <= c.HoldTimeout {
		errs = append(errs, problem("StreamIdleTimeout", "%v would end requests that are held for HoldTimeout (%v)", c.StreamIdleTimeout, c.HoldTimeout))
	}
	return errors.Join(errs...)
}

func (c Config) validateLimits() error {
	var errs []error
	if c.MaxConnections == 0 || c.MaxConnections > math.MaxInt32 {
		errs = append(errs, problem("MaxConnections", "set a number from 1 to 2147483647"))
	}
	if c.MaxRequestHeadersKiB < minHeadersKiB || c.MaxRequestHeadersKiB > maxHeadersKiB {
		errs = append(errs, problem("MaxRequestHeadersKiB", "%d is not between %d and %d", c.MaxRequestHeadersKiB, minHeadersKiB, maxHeadersKiB))
	}
	if c.BufferLimit < minBuffer || c.BufferLimit > maxBuffer {
		errs = append(errs, problem("BufferLimit", "%d is not between %d and %d bytes", c.BufferLimit, minBuffer, maxBuffer))
	}
	if c.RetryBuffer < minBuffer || c.RetryBuffer > maxBuffer {
		errs = append(errs, problem("RetryBuffer", "%d is not between %d and %d bytes", c.RetryBuffer, minBuffer, maxBuffer))
	}
	return errors.Join(errs...)
}

func (c Config) validateTexts() error {
	var errs []error
	switch c.AccessLog {
	case AccessLogOff, AccessLogErrors, AccessLogAll:
	default:
		errs = append(errs, problem("AccessLog", "%q is none of off, errors, all", c.AccessLog))
	}
	seen := map[string]bool{}
	for _, u := range c.Upgrades {
		name := strings.ToLower(u)
		if name == "" || seen[name] {
			errs = append(errs, problem("Upgrades", "%q is empty or there twice", u))
		}
		seen[name] = true
	}
	for _, s := range append([]string{c.NodeID, c.NodeCluster, c.Admin, c.Extproc, c.ControllerHost, c.TLSDir, c.SecretsDir}, c.Upgrades...) {
		if !utf8.ValidString(s) {
			errs = append(errs, fmt.Errorf("%q is not UTF-8", s))
		}
	}
	return errors.Join(errs...)
}

// place is where something listens: a socket's path or an address.
type place struct {
	path string
	addr netip.AddrPort
}

// maxSocketPath is the longest path that Linux takes for a socket.
const maxSocketPath = 107

func parsePlace(s string) (place, error) {
	if strings.HasPrefix(s, "/") {
		if filepath.Clean(s) != s || len(s) > maxSocketPath {
			return place{}, fmt.Errorf("%q is not a clean path of at most %d bytes", s, maxSocketPath)
		}
		return place{path: s}, nil
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil || addr.Port() == 0 {
		return place{}, fmt.Errorf("%q is neither an absolute path nor ip:port", s)
	}
	return place{addr: addr}, nil
}

package main

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skipper/envoy"
)

// bootstrapOptions are the flags of "envoy bootstrap": envoy.Config, with the
// admin address split so that a port alone can be given.
type bootstrapOptions struct {
	config      envoy.Config
	adminPort   uint16
	adminSocket string
	accessLog   string
	listeners   map[string]int
	outputDir   string
	parts       bool
}

func newBootstrapOptions() *bootstrapOptions {
	c := envoy.Default()
	admin := netip.MustParseAddrPort(c.Admin)
	return &bootstrapOptions{config: c, adminPort: admin.Port(), accessLog: string(c.AccessLog)}
}

func newBootstrap() *cobra.Command {
	o := newBootstrapOptions()
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the bootstrap of a gateway's Envoy as YAML",
		Long: `Print the bootstrap of a gateway's Envoy as YAML, for envoy -c.

The defaults are those of the gateway pod in the manifests: extproc beside Envoy,
the admin interface on loopback. Envoy needs --service-node and --service-cluster,
unless --node-id and --node-cluster are given here. With TLS towards the controllers
it reads two more files, which --output-dir writes beside bootstrap.yaml. Each flag may be set by an
environment variable, SKIPPER_HTTP_PORT for --http-port; a flag beats the variable.`,
		Example: "  skipper envoy bootstrap --output-dir /etc/envoy\n" +
			"  envoy -c /etc/envoy/bootstrap.yaml --service-node \"$POD_NAME\" --service-cluster skipper-gateway",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *bootstrapOptions) addFlags(f *pflag.FlagSet) {
	c := &o.config
	f.SortFlags = false
	f.StringVar(&c.HTTPAddress, "http-address", c.HTTPAddress, "IP to take requests at: 127.0.0.1, from the same pod alone; ::, all addresses of both families")
	f.Uint16Var(&c.HTTPPort, "http-port", c.HTTPPort, "port for clients")
	f.Uint16Var(&c.ReadyPort, "ready-port", c.ReadyPort, "port that answers GET /ready and GET /metrics and nothing else, on all addresses")
	f.Uint16Var(&o.adminPort, "admin-port", o.adminPort, "port of the admin interface, on 127.0.0.1")
	f.StringVar(&o.adminSocket, "admin-socket", "", "absolute path of a socket for the admin interface, instead of --admin-port")
	f.StringVar(&c.NodeID, "node-id", "", "node id; empty: Envoy's --service-node")
	f.StringVar(&c.NodeCluster, "node-cluster", "", "node cluster; empty: Envoy's --service-cluster")
	f.StringVar(&c.Extproc, "extproc-socket", c.Extproc, "where extproc listens: absolute path of a socket, or ip:port")
	f.DurationVar(&c.HoldTimeout, "hold-timeout", c.HoldTimeout, "how long extproc may hold a request; the same as its own --hold-timeout")
	f.DurationVar(&c.MessageTimeout, "message-timeout", c.MessageTimeout, "how long extproc may take to say that it holds a request")
	f.StringVar(&c.ControllerHost, "controller-host", c.ControllerHost, "name or IP of the controllers; each of its addresses is a replica")
	f.Uint16Var(&c.ControllerPort, "controller-port", c.ControllerPort, "gRPC port of the controllers")
	f.BoolVar(&c.ControllerPlaintext, "controller-plaintext", c.ControllerPlaintext, "speak to the controllers without TLS, if they do with --insecure-plaintext")
	f.StringVar(&c.TLSDir, "tls-dir", c.TLSDir, "folder of tls.crt, tls.key and ca.crt, as Envoy sees it; files that change there are taken over")
	f.StringVar(&c.SecretsDir, "secrets-dir", c.SecretsDir, "folder of the files that --output-dir writes, as Envoy sees it")
	f.DurationVar(&c.ControllerWait, "controller-wait", c.ControllerWait, "how long a starting Envoy stays closed without a controller's answer; 0: as long as it takes")
	f.BoolVar(&c.LoadReports, "load-reports", c.LoadReports, "report requests in progress per instance to the controllers")
	f.Uint32Var(&c.TrustedHops, "trusted-hops", c.TrustedHops, "number of proxies in front whose forwarding headers are believed; 0: clients' copies are dropped")
	f.StringSliceVar(&c.Upgrades, "upgrades", c.Upgrades, "protocols of the Upgrade header that are let through, and CONNECT")
	f.DurationVar(&c.StreamIdleTimeout, "stream-idle-timeout", c.StreamIdleTimeout, "ends a request on which nothing moves for so long; 0: never")
	f.DurationVar(&c.ConnectionIdleTimeout, "connection-idle-timeout", c.ConnectionIdleTimeout, "closes a client's connection without requests; 0: never")
	f.DurationVar(&c.RequestHeadersTimeout, "request-headers-timeout", c.RequestHeadersTimeout, "how long a client may take to send the headers; 0: for ever")
	f.Uint32Var(&c.MaxConnections, "max-connections", c.MaxConnections, "bound on clients' connections")
	f.Uint32Var(&c.MaxRequestHeadersKiB, "max-request-headers-kib", c.MaxRequestHeadersKiB, "bound on a request's headers together, in KiB")
	f.Uint32Var(&c.BufferLimit, "buffer-limit", c.BufferLimit, "bound on what one connection keeps in memory, in bytes")
	f.Uint32Var(&c.RetryBuffer, "retry-buffer", c.RetryBuffer, "bound on what one request's body keeps in memory to be sent to another pod, in bytes")
	f.StringVar(&o.accessLog, "access-log", o.accessLog, "requests to log: off, errors or all")
	f.BoolVar(&c.ForwardTrace, "forward-trace", c.ForwardTrace, "show extproc the trace context of requests, for its own spans")
	f.StringToIntVar(&o.listeners, "listeners", nil, "further ports for clients, as name=port; extproc may have rules for each name")
	f.StringVar(&o.outputDir, "output-dir", "", "folder to write bootstrap.yaml to, and what it refers to; empty: print bootstrap.yaml alone")
	f.BoolVar(&c.ClusterStats, "cluster-stats", c.ClusterStats, "keep Envoy's statistics of each cluster of pods")
	f.BoolVar(&o.parts, "parts", false, "for an Envoy that is there: leave out node, admin interface, readiness, limits and statistics, which it has itself")
}

// resolve returns the Config that the flags describe.
func (o *bootstrapOptions) resolve() envoy.Config {
	c := o.config
	c.AccessLog = envoy.AccessLog(strings.ToLower(o.accessLog))
	c.Admin = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), o.adminPort).String()
	if o.adminSocket != "" {
		c.Admin = o.adminSocket
	}
	for _, name := range slices.Sorted(maps.Keys(o.listeners)) {
		port := o.listeners[name]
		if port < 0 || port > math.MaxUint16 {
			port = 0 // which is refused by name
		}
		c.Listeners = append(c.Listeners, envoy.Listener{Name: name, Port: uint16(port)})
	}
	return c
}

func (o *bootstrapOptions) run(cmd *cobra.Command) error {
	if err := fromEnv(cmd.Flags(), os.Getenv); err != nil {
		return err
	}
	b, err := envoy.Bootstrap(o.resolve())
	if err != nil {
		return err
	}
	if o.parts {
		envoy.Parts(b)
	}
	text, err := envoy.YAML(b)
	if err != nil {
		return err
	}
	if o.outputDir != "" {
		return o.write(text)
	}
	if _, err := cmd.OutOrStdout().Write(text); err != nil {
		return fmt.Errorf("write bootstrap: %w", err)
	}
	return nil
}

// write puts the bootstrap and the files that it refers to into outputDir.
func (o *bootstrapOptions) write(bootstrap []byte) error {
	files, err := envoy.Secrets(o.resolve())
	if err != nil {
		return err
	}
	all := map[string][]byte{"bootstrap.yaml": bootstrap}
	maps.Copy(all, files)
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(o.outputDir, name), text, 0o644); err != nil {
			return fmt.Errorf("write Envoy's configuration: %w", err)
		}
	}
	return nil
}

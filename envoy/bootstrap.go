package envoy

import (
	"fmt"
	"net/netip"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"
)

// gracefulClose makes Envoy end the ext_proc stream of a finished request
// without a reset, so extproc can tell "over" from "broken" (design section 3).
const gracefulClose = "envoy.reloadable_features.ext_proc_graceful_grpc_close"

// clientCacheIdle keeps each worker's gRPC client to extproc for good. By default Envoy drops it after 50 s without
// a new request; a WebSocket that outlives that owns the client alone then, and with gracefulClose its end destroys
// the client in the middle of the client's own callback: Envoy 1.40.0 dies of a null pointer. There is one client
// per gRPC service of this file, so nothing grows.
const clientCacheIdle = 10 * 365 * 24 * time.Hour

// Bootstrap builds the whole configuration of an Envoy, or says everything
// that is wrong with c. Equal Configs give equal messages.
func Bootstrap(c Config) (*bootstrapv3.Bootstrap, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("validate Envoy configuration: %w", err)
	}
	b := &builder{cfg: c}
	out := b.bootstrap()
	if b.err != nil {
		return nil, b.err
	}
	if err := out.ValidateAll(); err != nil {
		return nil, fmt.Errorf("validate bootstrap: %w", err)
	}
	return out, nil
}

// YAML renders a bootstrap as a file that Envoy reads (-c), or another message
// as one that it finds through it. Equal messages give equal bytes.
func YAML(m proto.Message) ([]byte, error) {
	name := m.ProtoReflect().Descriptor().Name()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	out, err := yaml.JSONToYAML(text)
	if err != nil {
		return nil, fmt.Errorf("convert %s to YAML: %w", name, err)
	}
	return out, nil
}

// builder makes the parts of one bootstrap and keeps the first error, so that
// the parts read as plain values.
type builder struct {
	cfg Config
	err error
}

// any packs an extension's configuration.
func (b *builder) any(m proto.Message) *anypb.Any {
	out := &anypb.Any{}
	err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true})
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return out
}

func (b *builder) bootstrap() *bootstrapv3.Bootstrap {
	return &bootstrapv3.Bootstrap{
		Node:                b.node(),
		Admin:               &bootstrapv3.Admin{Address: b.place(b.cfg.Admin), IgnoreGlobalConnLimit: true},
		BootstrapExtensions: b.internalListeners(),
		LayeredRuntime:      layeredRuntime(),
		OverloadManager:     b.overload(),
		StatsConfig:         b.stats(),
		ClusterManager:      b.clusterManager(),
		DynamicResources:    b.dynamic(),
		GrpcAsyncClientManagerConfig: &bootstrapv3.Bootstrap_GrpcAsyncClientManagerConfig{
			MaxCachedEntryIdleDuration: durationpb.New(clientCacheIdle),
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: append(b.ingresses(), b.secondPass(), b.ready()),
			Clusters:  []*clusterv3.Cluster{b.extprocCluster(), b.passCluster(), b.controllers(), b.adminCluster()},
		},
	}
}

func (b *builder) node() *corev3.Node {
	if b.cfg.NodeID == "" && b.cfg.NodeCluster == "" {
		return nil
	}
	return &corev3.Node{Id: b.cfg.NodeID, Cluster: b.cfg.NodeCluster}
}

func layeredRuntime() *bootstrapv3.LayeredRuntime {
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name: "skipper",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{
			Fields: map[string]*structpb.Value{gracefulClose: structpb.NewBoolValue(true)},
		}},
	}}}
}

// place is the address of a socket or of ip:port; Validate has passed it.
func (b *builder) place(s string) *corev3.Address {
	p, err := parsePlace(s)
	if err != nil && b.err == nil {
		b.err = err
	}
	if p.path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: p.path}}}
	}
	return socketAddress(p.addr.Addr().String(), p.addr.Port())
}

func socketAddress(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// everywhere is every address of both families.
const everywhere = "::"

// listenAddress is where a listener listens; Validate has passed the IP.
func listenAddress(ip string, port uint16) *corev3.Address {
	a := socketAddress(ip, port)
	parsed, _ := netip.ParseAddr(ip)
	a.GetSocketAddress().Ipv4Compat = parsed == netip.IPv6Unspecified()
	return a
}

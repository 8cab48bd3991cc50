package resource

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"skipper/xds"
)

// Endpoint is a pod as Envoy sees it.
type Endpoint struct {
	// UID of the pod; it selects the shard and tells apart pods that follow
	// one another at an address.
	UID string
	// Addr is "ip:port" or "[ip]:port".
	Addr string
	// Protocol selects the cluster family.
	Protocol xds.Protocol
}

// Validate says why an endpoint cannot be published; nil means that it can.
func (e Endpoint) Validate() error {
	if e.UID == "" {
		return fmt.Errorf("endpoint at %q has no pod UID", e.Addr)
	}
	if e.Protocol != xds.HTTP1 && e.Protocol != xds.H2C {
		return fmt.Errorf("endpoint of pod %s has protocol %q: use %s or %s", e.UID, e.Protocol, xds.HTTP1, xds.H2C)
	}
	a, err := netip.ParseAddrPort(e.Addr)
	if err != nil {
		return fmt.Errorf("endpoint of pod %s: %w", e.UID, err)
	}
	if a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().Zone() != "" {
		return fmt.Errorf("endpoint of pod %s: no request can go to address %q", e.UID, e.Addr)
	}
	return nil
}

// LoadAssignment lists the endpoints of a cluster, sorted by address, then
// UID. Pods that share an address make one entry, because Envoy knows hosts by
// address; the entry stays as long as one of them is listed. Endpoints whose
// address does not parse are left out: see Endpoint.Validate. The protocol is
// not looked at.
func LoadAssignment(cluster string, endpoints []Endpoint) *endpointv3.ClusterLoadAssignment {
	sorted := slices.Clone(endpoints)
	slices.SortFunc(sorted, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.UID, b.UID))
	})
	hosts := make([]*endpointv3.LbEndpoint, 0, len(sorted))
	seen := make(map[netip.AddrPort]bool, len(sorted))
	for _, e := range sorted {
		a, err := netip.ParseAddrPort(e.Addr)
		if err != nil || seen[canonical(a)] {
			continue
		}
		seen[canonical(a)] = true
		hosts = append(hosts, host(canonical(a)))
	}
	a := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if len(hosts) > 0 {
		a.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: hosts}}
	}
	return a
}

// canonical gives one form to an IPv4 address and its mapping into IPv6.
func canonical(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func host(a netip.AddrPort) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address:       a.Addr().String(),
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
		}}},
	}}}
}

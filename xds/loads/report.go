package loads

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"skipper/xds"
)

// Busy is an endpoint with requests in progress.
type Busy struct {
	// Cluster is one of package xds.
	Cluster string
	// Addr is "ip:port" as package resource publishes it.
	Addr string
	// InProgress is at least 1, and at most what one cluster lets through.
	InProgress uint32
}

// Bounds of a report; one beyond them is refused as a whole.
const (
	// maxClusters is several times what Envoy knows of us: two families and
	// what stands before each of their clusters.
	maxClusters = 4_096
	// maxEndpoints is twice the pods that a cell is made for (design section 6).
	maxEndpoints = 100_000
	// maxNodeID is as long as a name of Kubernetes can be.
	maxNodeID = 253
	// maxInProgress is what the circuit breakers of a cluster let through; an
	// Envoy that says more is wrong.
	maxInProgress = 1_000_000
)

// names are the clusters that are ours.
type names map[string]string

func clusterNames(shards int) names {
	n := names{}
	for _, p := range []xds.Protocol{xds.HTTP1, xds.H2C} {
		for i := range shards {
			name := xds.ClusterName(p, i)
			n[name] = name // found by a message's string, kept instead of it
		}
	}
	return n
}

// isReport tells a report from Envoy's hello: it names all clusters, and some
// are always there.
func isReport(r *loadstatsv3.LoadStatsRequest) bool { return len(r.GetClusterStats()) > 0 }

// busy reads a report. It keeps nothing of r. Other clusters than ours, and
// endpoints without an IP address, are left out. An endpoint may be there
// twice, once for each priority: then its counts belong together.
func (n names) busy(r *loadstatsv3.LoadStatsRequest) ([]Busy, error) {
	if c := len(r.GetClusterStats()); c > maxClusters {
		return nil, fmt.Errorf("report has %d clusters, at most %d are taken", c, maxClusters)
	}
	var out []Busy
	seen := 0
	for _, c := range r.GetClusterStats() {
		name, ours := n[c.GetClusterName()]
		for _, l := range c.GetUpstreamLocalityStats() {
			if seen += len(l.GetUpstreamEndpointStats()); seen > maxEndpoints {
				return nil, fmt.Errorf("report has more than the %d endpoints that are taken", maxEndpoints)
			}
			if ours {
				out = appendBusy(out, name, l)
			}
		}
	}
	return out, nil
}

func appendBusy(out []Busy, cluster string, l *endpointv3.UpstreamLocalityStats) []Busy {
	for _, e := range l.GetUpstreamEndpointStats() {
		inProgress := uint32(min(e.GetTotalRequestsInProgress(), maxInProgress))
		addr := address(e.GetAddress().GetSocketAddress())
		if inProgress > 0 && addr != "" {
			out = append(out, Busy{cluster, addr, inProgress})
		}
	}
	return out
}

// address is empty for what is no IP and port.
func address(a *corev3.SocketAddress) string {
	ip, err := netip.ParseAddr(a.GetAddress())
	port := a.GetPortValue()
	if err != nil || ip.Zone() != "" || port == 0 || port > 65535 {
		return ""
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)).String()
}

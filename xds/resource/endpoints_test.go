package resource_test

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"skipper/xds"
	"skipper/xds/resource"
)

func TestLoadAssignmentListsEachAddressOnce(t *testing.T) {
	for _, row := range []struct {
		name      string
		endpoints []resource.Endpoint
		want      []string
	}{
		{"none", nil, nil},
		{"sorted by address", []resource.Endpoint{{UID: "a", Addr: "10.0.0.2:80"}, {UID: "b", Addr: "10.0.0.1:80"}}, []string{"10.0.0.1:80", "10.0.0.2:80"}},
		{"two pods, one address", []resource.Endpoint{{UID: "b", Addr: "10.0.0.1:80"}, {UID: "a", Addr: "10.0.0.1:80"}}, []string{"10.0.0.1:80"}},
		{"two ports of one ip", []resource.Endpoint{{UID: "a", Addr: "10.0.0.1:81"}, {UID: "b", Addr: "10.0.0.1:80"}}, []string{"10.0.0.1:80", "10.0.0.1:81"}},
		{"ipv6", []resource.Endpoint{{UID: "a", Addr: "[fd00::1]:80"}, {UID: "b", Addr: "[fd00:0::1]:80"}}, []string{"[fd00::1]:80"}},
		{"mapped ipv4 is ipv4", []resource.Endpoint{{UID: "a", Addr: "[::ffff:10.0.0.1]:80"}, {UID: "b", Addr: "10.0.0.1:80"}}, []string{"10.0.0.1:80"}},
		{"no address", []resource.Endpoint{{UID: "a"}, {UID: "b", Addr: "10.0.0.1"}, {UID: "c", Addr: "host:80"}, {UID: "d", Addr: "10.0.0.1:80"}}, []string{"10.0.0.1:80"}},
	} {
		got := resource.LoadAssignment("c", row.endpoints)
		if diff := cmp.Diff(row.want, addresses(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
		if err := got.ValidateAll(); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestLoadAssignmentDoesNotDependOnOrder(t *testing.T) {
	var endpoints []resource.Endpoint
	for i := range 40 {
		endpoints = append(endpoints, resource.Endpoint{UID: strconv.Itoa(i), Addr: "10.0.0." + strconv.Itoa(i%25+1) + ":80"})
	}
	want := resource.LoadAssignment("c", endpoints)
	for range 20 {
		rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
		if got := resource.LoadAssignment("c", endpoints); !proto.Equal(got, want) {
			t.Fatalf("other order, other assignment: %v", got)
		}
	}
}

func TestEndpointValidateNamesTheProblem(t *testing.T) {
	for _, e := range []resource.Endpoint{
		{Addr: "10.0.0.1:80", Protocol: xds.HTTP1},
		{UID: "a", Addr: "10.0.0.1:80"},
		{UID: "a", Addr: "10.0.0.1:80", Protocol: "h3"},
		{UID: "a", Protocol: xds.HTTP1},
		{UID: "a", Addr: "10.0.0.1", Protocol: xds.HTTP1},
		{UID: "a", Addr: "10.0.0.1:0", Protocol: xds.HTTP1},
		{UID: "a", Addr: "0.0.0.0:80", Protocol: xds.HTTP1},
		{UID: "a", Addr: "[fe80::1%eth0]:80", Protocol: xds.HTTP1},
		{UID: "a", Addr: "pod.local:80", Protocol: xds.HTTP1},
	} {
		if e.Validate() == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
	if err := (resource.Endpoint{UID: "a", Addr: "[fd00::1]:80", Protocol: xds.H2C}).Validate(); err != nil {
		t.Error(err)
	}
}

func addresses(a *endpointv3.ClusterLoadAssignment) []string {
	var out []string
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			s := e.GetEndpoint().GetAddress().GetSocketAddress()
			out = append(out, net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue()))))
		}
	}
	return out
}

func FuzzLoadAssignment(f *testing.F) {
	for _, seed := range []string{"10.0.0.1:80", "[::1]:80", "", ":", "10.0.0.1:99999", "\xff:1"} {
		f.Add(seed, "uid")
	}
	f.Fuzz(func(t *testing.T, addr, uid string) {
		a := resource.LoadAssignment("c", []resource.Endpoint{{UID: uid, Addr: addr}, {UID: "b", Addr: addr}})
		if _, err := resource.Encode("c", a); err != nil {
			t.Error(err)
		}
		if len(addresses(a)) > 1 {
			t.Errorf("%q stands twice", addr)
		}
	})
}

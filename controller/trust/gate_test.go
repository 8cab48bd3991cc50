package trust_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"

	"skipper/controller/trust"
	"skipper/xds"
)

// Who may call what, by the last part of the method's name; everybody else may not.
var allowed = map[string][]identity.Role{
	"GetInstance":               {identity.Controller, identity.Extproc, identity.Operator},
	"Heartbeat":                 {identity.Controller, identity.Extproc, identity.Operator},
	"ReleaseInstance":           {identity.Controller, identity.Extproc, identity.Operator},
	"Scale":                     {identity.Controller, identity.Operator},
	"GetClusterState":           {identity.Controller, identity.Operator},
	"DeltaAggregatedResources":  {identity.Envoy, identity.Extproc},
	"StreamAggregatedResources": {identity.Envoy, identity.Extproc},
	"StreamLoadStats":           {identity.Envoy},
	"Check":                     identity.Roles(),
	"List":                      identity.Roles(),
	"Watch":                     identity.Roles(),
	"ServerReflectionInfo":      {identity.Operator},
}

func TestEveryRoleMayCallWhatItNeedsAndNoMore(t *testing.T) {
	w := newWorld(t)
	for _, role := range identity.Roles() {
		conn := w.dial(t, w.certificate(t, issue.Request{Role: role}))
		for service, info := range w.server.GetServiceInfo() {
			for _, m := range info.Methods {
				err := call(t, conn, "/"+service+"/"+m.Name, m)
				may := slices.Contains(allowed[m.Name], role)
				if denied := status.Code(err) == codes.PermissionDenied; denied == may {
					t.Errorf("%s calls %s: %v, want allowed %v", role, m.Name, err, may)
				}
			}
		}
	}
}

// call sends an empty message and returns how the call ended; a stream that
// stays open counts as no error.
func call(t *testing.T, conn *grpc.ClientConn, method string, m grpc.MethodInfo) error {
	t.Helper()
	if !m.IsClientStream && !m.IsServerStream {
		return conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
	}
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	_ = errors.Join(s.SendMsg(&emptypb.Empty{}), s.CloseSend()) // on a refused stream they fail too: the answer says why
	err = s.RecvMsg(&emptypb.Empty{})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func TestXDSTypesBelongToRoles(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		role identity.Role
		url  string
		may  bool
	}{
		{identity.Envoy, resourcev3.ClusterType, true},
		{identity.Envoy, resourcev3.EndpointType, true},
		{identity.Envoy, xds.InstancesTypeURL, false},
		{identity.Extproc, xds.InstancesTypeURL, true},
		{identity.Extproc, resourcev3.ClusterType, false},
		{identity.Extproc, resourcev3.EndpointType, false},
		{identity.Envoy, "unknown", true}, // the server's own refusal says more
	} {
		conn := w.dial(t, w.certificate(t, issue.Request{Role: row.role}))
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = errors.Join(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: row.url}), s.CloseSend()) // the answer says why they failed
		_, err = s.Recv()
		if denied := status.Code(err) == codes.PermissionDenied; denied == row.may {
			t.Errorf("%s subscribes to %s: %v, want allowed %v", row.role, row.url, err, row.may)
		}
	}
}

// Connections without a usable certificate never get as far as a call; each
// leaves a line and a count.
func TestStrangersAreRefusedWithTheCause(t *testing.T) {
	foreign := newAuthority(t)
	for cause, row := range map[string]struct {
		request issue.Request
		by      *issue.Authority
		none    bool
	}{
		"no_certificate":    {none: true},
		"unknown_authority": {request: issue.Request{Role: identity.Extproc}, by: foreign},
		"expired":           {request: issue.Request{Role: identity.Extproc, Lifetime: -time.Minute}},
		"no_role":           {request: issue.Request{Role: "visitor"}},
	} {
		t.Run(cause, func(t *testing.T) {
			w := newWorld(t)
			pair := issue.Pair{}
			if !row.none {
				by := row.by
				if by == nil {
					by = w.authority
				}
				pair = certificate(t, by, row.request)
			}
			_, err := healthpb.NewHealthClient(w.dial(t, pair)).Check(t.Context(), &healthpb.HealthCheckRequest{})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("call: %v, want no connection", err)
			}
			w.wantRefused(t, cause)
		})
	}
}

func TestPlaintextIsRefused(t *testing.T) {
	w := newWorld(t)
	_, err := healthpb.NewHealthClient(w.dialPlaintext(t)).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("call: %v, want no connection", err)
	}
	w.wantRefused(t, "not_tls")
}

func TestAProbeOfThePortIsNotLogged(t *testing.T) {
	w := newWorld(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	w.untilCounted(t, "skipper_controller_tls_refused_total", "closed_by_peer", 1)
	if w.logs.Len() != 0 {
		t.Errorf("logged %v", w.logs.All())
	}
}

func TestRefusalsAreLoggedAtABoundedRate(t *testing.T) {
	w := newWorld(t)
	client := skipperpb.NewControllerServiceClient(w.dial(t, w.certificate(t, issue.Request{Role: identity.Envoy})))
	const calls = 100
	for range calls {
		if _, err := client.Scale(t.Context(), &skipperpb.ScaleRequest{}); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	w.untilCounted(t, "skipper_controller_denied_calls_total", "envoy", calls)
	if n := w.logs.Len(); n < 1 || n > calls/2 {
		t.Errorf("%d lines for %d refusals", n, calls)
	}
}

func TestCheckNamesWhatNobodyMayCall(t *testing.T) {
	w := newWorld(t)
	if err := trust.Check(w.server.GetServiceInfo()); err != nil {
		t.Error(err)
	}
	err := trust.Check(map[string]grpc.ServiceInfo{"new.Service": {Methods: []grpc.MethodInfo{{Name: "B"}, {Name: "A"}}}})
	if err == nil || !strings.Contains(err.Error(), "/new.Service/A, /new.Service/B") {
		t.Errorf("Check = %v", err)
	}
}

//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

// services are all that answer on the controllers' gRPC port.
func services() []grpc.ServiceDesc {
	return []grpc.ServiceDesc{
		skipperpb.ControllerService_ServiceDesc, discoveryv3.AggregatedDiscoveryService_ServiceDesc, healthpb.Health_ServiceDesc,
	}
}

// A tenant's pod that reaches the controllers' port gets nothing done: not in plaintext, not without a certificate, not
// with one that it made itself.
func TestTenantGetsNothingFromTheController(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.newPool(t, 1)
	mustEcho(t, p.get(t.Context(), p.function("a"), "/"))
	inside := processOf(t, p.tenantPod(t, "a"), "echo")
	forged, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := forged.Issue(issue.Request{Role: identity.Operator}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, creds := range map[string]credentials.TransportCredentials{
		"in plaintext":          insecure.NewCredentials(),
		"without a certificate": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
		"of another authority":  showing(t, pair.Cert, pair.Key),
	} {
		conn := w.dialController(t, creds, inside.dial)
		for method, call := range calls(conn) {
			if err := call(t.Context()); status.Code(err) != codes.Unavailable {
				t.Errorf("%s %s: %v, want no connection", method, name, err)
			}
		}
	}
}

// Roles of Skipper itself may do no more than they need.
func TestRolesAreKeptApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	envoy, extproc := w.dialController(t, w.certificate(t, identity.Envoy), nil), w.dialController(t, w.certificate(t, identity.Extproc), nil)
	for method, call := range calls(envoy) {
		own := []string{"DeltaAggregatedResources", "StreamAggregatedResources", "Check", "List", "Watch"}
		if err := call(t.Context()); (status.Code(err) == codes.PermissionDenied) == slices.Contains(own, method) {
			t.Errorf("envoy calls %s: %v", method, err)
		}
	}
	for method, call := range calls(extproc) {
		denied := []string{"Scale", "GetClusterState"}
		if err := call(t.Context()); (status.Code(err) == codes.PermissionDenied) != slices.Contains(denied, method) {
			t.Errorf("extproc calls %s: %v", method, err)
		}
	}
	operator := skipperpb.NewControllerServiceClient(w.dialController(t, w.certificate(t, identity.Operator), nil))
	if _, err := operator.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{}); err != nil {
		t.Errorf("operator: %v", err)
	}
}

// tenantPod is the one pod of a tenant.
func (p *pool) tenantPod(t *testing.T, tenant string) *corev1.Pod {
	t.Helper()
	pods, err := p.kube.CoreV1().Pods(p.functions).List(t.Context(), metav1.ListOptions{LabelSelector: "skipper/tenant=" + p.tenant(tenant)})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("tenant %s has %d pods, %v, want one", tenant, len(pods.Items), err)
	}
	return &pods.Items[0]
}

// calls are all methods by name, each with an empty message; a stream is left after its first answer.
func calls(conn *grpc.ClientConn) map[string]func(context.Context) error {
	out := map[string]func(context.Context) error{}
	for _, s := range services() {
		for _, m := range s.Methods {
			out[m.MethodName] = func(ctx context.Context) error {
				return conn.Invoke(ctx, fmt.Sprintf("/%s/%s", s.ServiceName, m.MethodName), &emptypb.Empty{}, &emptypb.Empty{})
			}
		}
		for _, m := range s.Streams {
			out[m.StreamName] = func(ctx context.Context) error {
				return callStream(ctx, conn, fmt.Sprintf("/%s/%s", s.ServiceName, m.StreamName))
			}
		}
	}
	return out
}

func callStream(ctx context.Context, conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	_, _ = s.SendMsg(&emptypb.Empty{}), s.CloseSend() // the answer says why they failed
	return s.RecvMsg(&emptypb.Empty{})
}

// certificate is that of a role of Skipper's, as an operator can read it.
func (w *world) certificate(t *testing.T, role identity.Role) credentials.TransportCredentials {
	t.Helper()
	s, err := w.kube.CoreV1().Secrets(w.system).Get(t.Context(), "skipper-tls-"+string(role), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return showing(t, s.Data["tls.crt"], s.Data["tls.key"])
}

// showing trusts anybody: it is the server that is tested.
func showing(t *testing.T, cert, key []byte) credentials.TransportCredentials {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	})
}

// dialController connects to a controller's pod; dial is from where, nil from here.
func (w *world) dialController(t *testing.T, c credentials.TransportCredentials, dial func(context.Context, string, string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	address := net.JoinHostPort(w.systemPods(t, controllerName)[0].Status.PodIP, "50051")
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(c),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // only says that it is closed already
	return conn
}

package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
)

const (
	// operatorSecret has the certificate of role operator (docs/trust.md).
	operatorSecret = "skipper-tls-operator"
	// maxState is the largest answer taken: a whole cluster's state at the size
	// that one controller must carry.
	maxState = 512 << 20
	grpcName = "grpc"
	grpcPort = 50051
)

// Replica is a controller's pod.
type Replica struct {
	Name, IP string
	// Ready says that it is on the ring and takes calls.
	Ready bool
	// Port for gRPC.
	Port uint16
}

// Replicas lists the controllers' pods that have not finished, by name, ready
// ones first.
func (c *Cluster) Replicas(ctx context.Context) ([]Replica, error) {
	pods, err := c.Kube.CoreV1().Pods(c.System).List(ctx, metav1.ListOptions{LabelSelector: c.Selector})
	if err != nil {
		return nil, fmt.Errorf("list controllers in namespace %s: %w", c.System, err)
	}
	var out []Replica
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil {
			out = append(out, Replica{p.Name, p.Status.PodIP, isReady(p), portOf(p)})
		}
	}
	slices.SortStableFunc(out, func(a, b Replica) int {
		if a.Ready != b.Ready {
			if a.Ready {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("no controller runs in namespace %s with labels %s: set --system-namespace and --controller-selector, or --controller", c.System, c.Selector)
	}
	return out, nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func portOf(p *corev1.Pod) uint16 {
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			if port.Name == grpcName {
				return uint16(port.ContainerPort)
			}
		}
	}
	return grpcPort
}

// Controller connects to a controller: the one at Options.Controller, or else
// the first replica that can be reached.
func (c *Cluster) Controller(ctx context.Context) (skipperpb.ControllerServiceClient, error) {
	if c.Options.Controller != "" {
		conn, err := c.dial(ctx, c.Options.Controller)
		if err != nil {
			return nil, err
		}
		return skipperpb.NewControllerServiceClient(conn), nil
	}
	replicas, err := c.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, r := range replicas {
		client, err := c.Replica(ctx, r)
		if err == nil {
			return client, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Replica connects to one replica through a port forward.
func (c *Cluster) Replica(ctx context.Context, r Replica) (skipperpb.ControllerServiceClient, error) {
	addr, err := c.ForwardUntilClose(ctx, c.System, r.Name, r.Port)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return skipperpb.NewControllerServiceClient(conn), nil
}

// ForwardUntilClose returns an address that leads to a pod's port until Close.
func (c *Cluster) ForwardUntilClose(ctx context.Context, namespace, pod string, port uint16) (string, error) {
	addr, closed, err := c.Forward.Forward(ctx, namespace, pod, port)
	if err != nil {
		return "", err
	}
	c.open = append(c.open, closed)
	return addr, nil
}

func (c *Cluster) dial(ctx context.Context, addr string) (*grpc.ClientConn, error) {
	creds, err := c.credentials(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds), grpc.WithDefaultServiceConfig(skipperpb.ServiceConfig),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxState)))
	if err != nil {
		return nil, fmt.Errorf("connect to controller %s: %w", addr, err)
	}
	c.open = append(c.open, func() { _ = conn.Close() })
	return conn, nil
}

// credentials show who the operator is.
func (c *Cluster) credentials(ctx context.Context) (credentials.TransportCredentials, error) {
	if c.Plaintext {
		return insecure.NewCredentials(), nil
	}
	data, err := c.certificate(ctx)
	if err != nil {
		return nil, err
	}
	i, err := identity.FromPEM(identity.Operator, data["tls.crt"], data["tls.key"], data["ca.crt"])
	if err != nil {
		return nil, err
	}
	return i.Client(identity.Controller), nil
}

// certificate reads the operator's files, from the folder or the Secret.
func (c *Cluster) certificate(ctx context.Context) (map[string][]byte, error) {
	if c.TLSDir == "" {
		s, err := c.Kube.CoreV1().Secrets(c.System).Get(ctx, operatorSecret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("secret %s/%s is missing: make it with skipper tls issue, name a folder by --tls-dir, or use --insecure-plaintext if the controllers do", c.System, operatorSecret)
		}
		if err != nil {
			return nil, fmt.Errorf("read the operator's certificate (or name a folder by --tls-dir): %w", err)
		}
		return s.Data, nil
	}
	out := map[string][]byte{}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		text, err := os.ReadFile(filepath.Join(c.TLSDir, name))
		if err != nil {
			return nil, fmt.Errorf("read the operator's certificate: %w", err)
		}
		out[name] = text
	}
	return out, nil
}

package connect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say where to go.
type Options struct {
	// Kubeconfig file; empty: KUBECONFIG, then ~/.kube/config, then the pod's own.
	Kubeconfig string
	// Context of the kubeconfig; empty: its current one.
	Context string
	// System is the namespace of the controllers.
	System string
	// Selector finds the controllers' pods in System.
	Selector string
	// Controller is "host:port"; empty: a port forward to a controller's pod.
	Controller string
	// TLSDir holds tls.crt, tls.key and ca.crt of role operator; empty: the Secret
	// skipper-tls-operator in System.
	TLSDir string
	// Plaintext speaks to controllers without TLS, if they do.
	Plaintext bool
}

// forwarder opens ports of pods on this machine: *PortForwarder.
type forwarder interface {
	// Forward returns an address that leads to the port until it is closed.
	Forward(ctx context.Context, namespace, pod string, port uint16) (addr string, closed func(), err error)
}

// Cluster is a Kubernetes cluster with Skipper in it. Use Open, or set Kube and
// Forward. Close it; one goroutine uses it.
type Cluster struct {
	Options
	Kube    kubernetes.Interface
	Forward forwarder
	// Clock asks the API server for the time by its clock, to the second.
	Clock func(ctx context.Context) (time.Time, error)

	open []func() // what Close ends, in reverse
}

// Open reads the kubeconfig. It does not ask the cluster anything yet.
func Open(o Options) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		err = fmt.Errorf("read kubeconfig (set --kubeconfig or KUBECONFIG): %w", err)
		if o.Controller == "" {
			return nil, err
		}
		cfg = &rest.Config{Transport: withoutCluster{err}} // a controller can be asked all the same
	}
	cfg.UserAgent = "skipper-cli"
	cfg.QPS, cfg.Burst = 50, 100 // one person's questions; the server has its own fairness
	cfg.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	return &Cluster{
		Options: o, Kube: kube, Forward: &PortForwarder{cfg, kube},
		Clock: func(ctx context.Context) (time.Time, error) { return serverTime(ctx, cfg) },
	}, nil
}

// withoutCluster fails each request for the reason that there is no cluster.
type withoutCluster struct{ err error }

func (w withoutCluster) RoundTrip(*http.Request) (*http.Response, error) { return nil, w.err }

// Close ends all that was opened.
func (c *Cluster) Close() {
	for i := len(c.open) - 1; i >= 0; i-- {
		c.open[i]()
	}
	c.open = nil
}

// serverTime reads the Date header of an answer that needs no rights.
func serverTime(ctx context.Context, cfg *rest.Config) (time.Time, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return time.Time{}, fmt.Errorf("use kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return time.Time{}, fmt.Errorf("use kubeconfig: %w", err)
	}
	return dateOf(ctx, client, base.JoinPath("version").String())
}

// dateOf is what the server at a URL says the time is.
func dateOf(ctx context.Context, client *http.Client, url string) (time.Time, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time: %w", err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time: %w", err)
	}
	_ = answer.Body.Close() // the headers are all that is wanted
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}, errors.New("ask for the time: the answer has no Date header")
	}
	return at, nil
}

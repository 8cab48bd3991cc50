package connect

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// PortForwarder forwards ports through the API server. Safe for concurrent use.
type PortForwarder struct {
	config *rest.Config
	kube   kubernetes.Interface
}

// Forward listens on a free port of the loopback address and leads it to the
// pod's port until closed is called, which waits for the end.
func (f *PortForwarder) Forward(ctx context.Context, namespace, pod string, port uint16) (addr string, closed func(), err error) {
	target := f.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	dialer, err := f.dialer(target)
	if err != nil {
		return "", nil, fmt.Errorf("forward port %d of pod %s/%s: %w", port, namespace, pod, err)
	}
	// The forwarder would log what connections end by, which whoever uses them says.
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	ready := make(chan struct{})
	forward, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(int(port))}, ready, io.Discard, io.Discard)
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("forward port %d of pod %s/%s: %w", port, namespace, pod, err)
	}
	done := make(chan error, 1)
	var forwarding sync.WaitGroup
	forwarding.Go(func() { done <- forward.ForwardPorts() })
	select {
	case err := <-done:
		stop()
		if err == nil {
			err = context.Cause(ctx)
		}
		return "", nil, fmt.Errorf("forward port %d of pod %s/%s (needs the right to create pods/portforward): %w", port, namespace, pod, err)
	case <-ready:
	}
	closed = func() {
		stop()
		forwarding.Wait()
	}
	ports, err := forward.GetPorts()
	if err != nil {
		closed()
		return "", nil, fmt.Errorf("forward port %d of pod %s/%s: %w", port, namespace, pod, err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), closed, nil
}

// dialer tries a WebSocket first, which goes through more proxies, and SPDY
// where the server is too old for it.
func (f *PortForwarder) dialer(target *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, f.config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(websocket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

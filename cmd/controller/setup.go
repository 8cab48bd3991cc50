package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"skipper/controller/assign"
	"skipper/controller/claim"
	"skipper/controller/config"
	skipperpb "skipper/proto"
)

// settings are the configuration, and how it is shown to operators.
type settings struct {
	*config.Config
	shown []*skipperpb.ConfigValue
}

// clients reach the API server: one for background work within its limits, one
// that is never held up, for what a caller waits for, and one for the metrics
// API, which may be nil where CPU and memory are not to be known.
type clients struct {
	background kubernetes.Interface
	urgent     corev1client.PodsGetter
	usage      metricsclient.PodMetricsesGetter
	calls      *apiCalls // of all of them
}

func newClients(cfg *config.Config) (clients, error) {
	base, err := restConfig(cfg.Kubeconfig)
	if err != nil {
		return clients{}, err
	}
	base.UserAgent = "skipper-controller"
	calls := newAPICalls()
	base.Wrap(calls.wrap)
	urgent, err := corev1client.NewForConfig(claim.ClientConfig(base))
	if err != nil {
		return clients{}, fmt.Errorf("make client for claims: %w", err)
	}
	base.QPS, base.Burst = cfg.KubeconfigQPS, cfg.KubeconfigBurst
	base.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	base.ContentType = "application/vnd.kubernetes.protobuf"
	background, err := kubernetes.NewForConfig(base)
	if err != nil {
		return clients{}, fmt.Errorf("make client: %w", err)
	}
	usage, err := metricsclient.NewForConfig(base)
	if err != nil {
		return clients{}, fmt.Errorf("make client for metrics: %w", err)
	}
	return clients{background, urgent, usage, calls}, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find API server: %w: outside of a cluster set --kubeconfig", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// readable are the function namespaces that may be watched. One that may not
// is an error, or left out where skip says so. Other faults are left to the
// informers, which try again.
func readable(ctx context.Context, c kubernetes.Interface, namespaces []string, skip bool, logger *zap.Logger) ([]string, error) {
	var out []string
	var errs []error
	for _, ns := range namespaces {
		switch err := tryList(ctx, c, ns); {
		case !apierrors.IsForbidden(err):
			out = append(out, ns)
		case skip:
			logger.Warn("function namespace left out: the controller may not watch it", zap.String("namespace", ns), zap.Error(err))
		default:
			errs = append(errs, fmt.Errorf("watch function namespace %s: %w: grant it, or set --skip-forbidden-namespaces", ns, err))
		}
	}
	if len(errs) == 0 && len(out) == 0 {
		errs = append(errs, errors.New("no function namespace may be watched: grant list and watch of pods and replicasets in one of them"))
	}
	return out, errors.Join(errs...)
}

// tryTimeout is how long an API server that does not answer holds up the start.
const tryTimeout = 5 * time.Second

func tryList(ctx context.Context, c kubernetes.Interface, ns string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	one := metav1.ListOptions{Limit: 1, ResourceVersion: "0"}
	_, podsErr := c.CoreV1().Pods(ns).List(ctx, one)
	_, setsErr := c.AppsV1().ReplicaSets(ns).List(ctx, one)
	if apierrors.IsForbidden(podsErr) {
		return podsErr
	}
	return setsErr
}

func signingKey(cfg *config.Config) (ed25519.PrivateKey, error) {
	if cfg.PasetoPrivateKeyFile != "" {
		return assign.LoadKey(cfg.PasetoPrivateKeyFile)
	}
	key, err := assign.ParseKey([]byte(cfg.PasetoPrivateKey))
	if err != nil {
		return nil, fmt.Errorf("--paseto-private-key: %w", err)
	}
	return key, nil
}

// listeners are open before anything else is done, so that a port that is taken
// is said at once.
type listeners struct{ grpc, web net.Listener }

func listen(ctx context.Context, cfg *config.Config) (listeners, error) {
	var l listeners
	for _, p := range []struct {
		into *net.Listener
		port uint16
	}{{&l.grpc, cfg.Port}, {&l.web, cfg.WebPort}} {
		var lc net.ListenConfig
		at := net.JoinHostPort(cfg.Host, strconv.Itoa(int(p.port)))
		opened, err := lc.Listen(ctx, "tcp", at)
		if err != nil {
			l.close()
			return listeners{}, fmt.Errorf("listen on %s: %w", at, err)
		}
		*p.into = opened
	}
	return l, nil
}

// close may come after a server has closed them already.
func (l listeners) close() {
	for _, n := range []net.Listener{l.grpc, l.web} {
		if n != nil {
			_ = n.Close()
		}
	}
}

func newLogger(level, format string) (*zap.Logger, error) {
	least, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("read log level: %w", err)
	}
	c := zap.Config{
		Level: zap.NewAtomicLevelAt(least), Encoding: "json", EncoderConfig: zap.NewProductionEncoderConfig(),
		OutputPaths: []string{"stderr"}, ErrorOutputPaths: []string{"stderr"},
	}
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	if format == "text" {
		c.Encoding = "console"
	}
	logger, err := c.Build()
	if err != nil {
		return nil, fmt.Errorf("make logger: %w", err)
	}
	return logger, nil
}

//go:build e2e

package soak

import (
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skipper/envoy/envoytest"
	"skipper/test/hollow"
)

// Times of Skipper's own, short, so that the rules of isolation bite within a
// short run.
const (
	beatTimeout   = 6 * time.Second
	drainTimeout  = 15 * time.Second
	holdTimeout   = 5 * time.Second
	start         = 2 * time.Minute // bounds every wait; it says nothing about how fast Skipper is
	glance        = 100 * time.Millisecond
	controllerWeb = 18080
	controllerRPC = 50151
)

// options of a world.
type options struct {
	controllers, gateways int
	// images and how many unassigned pods each has.
	images map[Image]int
	seed   uint64
	// addresses of pods, and which is given next.
	addresses int
	order     Order
	// controllerStaleness and extprocStaleness are --table-staleness of each.
	controllerStaleness, extprocStaleness time.Duration
	// tell is told of violations.
	tell func(string)
}

// usual is the world of the long runs.
func usual(t *testing.T, images map[Image]int) options {
	return options{
		controllers: 3, gateways: 2, images: images, seed: *seed, addresses: 64,
		controllerStaleness: *staleness, extprocStaleness: *staleness, tell: func(s string) { t.Error(s) },
	}
}

// world is real parts around a range of addresses that is too small.
type world struct {
	t           *testing.T
	options     options
	kube        kubernetes.Interface
	home, field string // namespaces of controllers and of pods
	node        *hollow.Node
	addresses   *Addresses
	kubelet     *Kubelet
	ledger      *Ledger
	controllers []*replica
	gateways    []*gateway
	network     string // the first three bytes of our own addresses
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG names no cluster: %v", err)
	}
	config.QPS, config.Burst = -1, 0
	w := &world{
		t: t, options: o, kube: kubernetes.NewForConfigOrDie(config), addresses: NewAddresses(o.addresses, o.order),
		network: fmt.Sprintf("127.%d.%d", 100+rand.IntN(100), rand.IntN(256)),
	}
	w.ledger = NewLedger(o.tell, w.addresses.Past)
	w.home, w.field = w.namespace("skipper-soak-home-"), w.namespace("skipper-soak-")
	w.startNode()
	dir := t.TempDir()
	key := w.writeKey(filepath.Join(dir, "key.pem"))
	w.startKubelet(key)
	w.startControllers(config, dir, o.controllers)
	for i := range o.gateways {
		w.startGateway(i)
	}
	return w
}

// background runs f until the end of the test, after clean-ups that are
// registered later.
func (w *world) background(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// afterwards runs f at the end of the test, when its context is over.
func (w *world) afterwards(f func(context.Context) error) {
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), start)
		defer cancel()
		if err := f(ctx); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) namespace(prefix string) string {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.afterwards(func(ctx context.Context) error { return w.removeNamespace(ctx, ns.Name) })
	return ns.Name
}

func (w *world) removeNamespace(ctx context.Context, name string) error {
	if err := w.kube.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (w *world) startNode() {
	w.t.Helper()
	node, err := hollow.NewNode(w.t.Context(), w.kube, w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	w.node = node
	w.afterwards(node.Remove)
	w.background(node.Run)
}

func (w *world) writeKey(path string) ed25519.PublicKey {
	w.t.Helper()
	public, key, err := ed25519.GenerateKey(cryptorand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return public
}

// startKubelet makes the pools too: one for each image, named after it.
func (w *world) startKubelet(key ed25519.PublicKey) {
	w.t.Helper()
	port := envoytest.FreePorts(w.t, 1)[0]
	w.kubelet = NewKubelet(KubeletConfig{
		Kube: w.kube, Node: w.node, Namespace: w.field, Port: port, Keys: []ed25519.PublicKey{key},
		Addresses: w.addresses, Visit: w.ledger.Visit, Seed: w.options.seed,
		Problem: func(err error) { w.t.Logf("kubelet: %v", err) },
	})
	w.background(w.kubelet.Run)
	// The kubelet lets pods go, so they must be gone before it is.
	w.afterwards(w.emptyField)
	for image, n := range w.options.images {
		d := w.node.Pool(string(image), int32(n), int32(port))
		d.Namespace = w.field
		grace := int64(1)
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
		d.Spec.Template.Labels[labelImage] = string(image)
		if _, err := w.kube.AppsV1().Deployments(w.field).Create(w.t.Context(), d, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) emptyField(ctx context.Context) error {
	if err := w.removeNamespace(ctx, w.field); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, glance, true, func(ctx context.Context) (bool, error) {
		pods, err := w.kube.CoreV1().Pods(w.field).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(pods.Items) == 0, nil
	})
}

// eventually fails the test when ok does not come; ok tells what it saw last.
func (w *world) eventually(what string, ok func() (bool, string)) {
	w.t.Helper()
	w.within(start, what, ok)
}

// within is eventually with another bound.
func (w *world) within(bound time.Duration, what string, ok func() (bool, string)) {
	w.t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(w.t.Context(), glance, bound, true, func(context.Context) (done bool, _ error) {
		done, last = ok()
		return done, nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
}

func httpOK(url string) (bool, string) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return false, err.Error()
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK, r.Status
}

// process prepares one of our programs; its log is kept for failures.
func (w *world) process(name, path string, args ...string) *Process {
	w.t.Helper()
	log, err := os.Create(filepath.Join(logDir(w.t), name+".log"))
	if err != nil {
		w.t.Fatal(err)
	}
	p := &Process{Name: name, Path: path, Args: args, Log: log}
	w.t.Cleanup(func() {
		p.End(syscall.SIGKILL)
		_ = log.Close()
		for _, end := range p.Ends() {
			if end != "signal: killed" && end != "exit status 0" {
				w.t.Errorf("%s ended by itself: %s, see %s", name, end, log.Name())
			}
		}
	})
	return p
}

// logDir is where logs stay after the run.
func logDir(t *testing.T) string {
	if *logs == "" {
		return t.TempDir()
	}
	dir := filepath.Join(*logs, t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// binaries are built once for all tests.
var binaries string

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "skipper-soak-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = dir
	args := []string{"build", "-o", dir + "/"}
	if *race {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "skipper/cmd/controller", "skipper/cmd/extproc")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("build controller and extproc: %w", err)
	}
	return m.Run(), nil
}

func binary(name string) string { return filepath.Join(binaries, name) }

func apiOf(config *rest.Config, g *Gate) (http.Handler, error) {
	api, err := hollow.LagProxy(config, 0, hollow.Hooks{})
	if err != nil {
		return nil, err
	}
	return FreezeWatches(api, g), nil
}

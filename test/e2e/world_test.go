//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Where things are in the manifests.
const (
	systemNamespace   = "skipper-system"
	functionNamespace = "functions"
	controllerName    = "skipper-controller"
	gatewayName       = "skipper-envoy"
	// modelPool is the pool whose image, key and settings the pools of the tests copy.
	modelPool = "echo"
	// defaultGateway is the node port of the local cluster.
	defaultGateway = "http://10.244.0.1:30080"
)

const (
	// patience bounds every wait. It says nothing about how fast Skipper is: a healthy run never comes near it.
	patience = 90 * time.Second
	// glance is the pause between two looks at something that cannot be watched.
	glance = 100 * time.Millisecond
	// parallelTests run at a time, unless -parallel says otherwise: they wait more than they compute.
	parallelTests = "4"
)

// world is the cluster and the gateway as one test uses them.
type world struct {
	config  *rest.Config
	kube    kubernetes.Interface
	gateway string
	http    *http.Client
	// system and functions are the namespaces of Skipper and of its pools.
	system, functions string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run prepares the cluster, runs the tests, and after a failure shows what Skipper had to say.
func run(m *testing.M) int {
	flag.Parse()
	if err := spread(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	release, err := alone()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer release()
	w, err := connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := w.prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		w.dumpLogs(os.Stderr)
		return 1
	}
	before := w.gatewayStarts()
	code := m.Run()
	if diff := cmp.Diff(before, w.gatewayStarts()); diff != "" {
		fmt.Fprintf(os.Stderr, "FAIL: no test stops the gateway, yet its containers were started anew (-before +after):\n%s", diff)
		code = 1
	}
	if code != 0 {
		w.dumpLogs(os.Stderr)
	}
	return code
}

// gatewayStarts tells which containers of the gateway run, and how often each was started anew.
func (w *world) gatewayStarts() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	starts := map[string]string{}
	pods, err := w.kube.CoreV1().Pods(w.system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + gatewayName})
	if err != nil {
		starts["error"] = err.Error()
		return starts
	}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			starts[p.Name+"/"+s.Name] = fmt.Sprintf("running %t, started anew %d times", s.State.Running != nil, s.RestartCount)
		}
	}
	return starts
}

// alone waits for another run on this machine to end: each removes what the other made, and disturbs its controller.
func alone() (release func(), err error) {
	path := filepath.Join(os.TempDir(), "skipper-e2e.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil // which unlocks; the run is over
}

// spread raises the number of parallel tests where the command line does not set it.
func spread() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", parallelTests)
}

// connect finds cluster and gateway.
func connect() (*world, error) {
	path, err := kubeconfigPath()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	config.QPS, config.Burst = 200, 400
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	gateway := os.Getenv("SKIPPER_GATEWAY")
	if gateway == "" {
		gateway = defaultGateway
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, ExpectContinueTimeout: patience}
	return &world{
		config: config, kube: kube, gateway: strings.TrimSuffix(gateway, "/"), http: &http.Client{Transport: transport},
		system: systemNamespace, functions: functionNamespace,
	}, nil
}

// kubeconfigPath asks the local cluster for its own where the environment names none.
func kubeconfigPath() (string, error) {
	if path := os.Getenv("KUBECONFIG"); path != "" {
		return path, nil
	}
	cmd := exec.Command("go", "run", ".", "kubeconfig")
	cmd.Dir = "../../deploy/local"
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("find the local cluster (set KUBECONFIG, or start it with make up): %w: %s", err, problems.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// newWorld connects for one test, and closes its connections at the end.
func newWorld(t *testing.T) *world {
	t.Helper()
	w, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

// prepare removes what an earlier run left, and waits until Skipper is there.
func (w *world) prepare(ctx context.Context) error {
	defer w.http.CloseIdleConnections()
	if err := w.sweep(ctx, suiteLabel); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	now := int64(0)
	err := w.kube.CoreV1().Pods(w.system).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: suiteLabel})
	if err != nil {
		return fmt.Errorf("remove gateways that an earlier run left: %w", err)
	}
	if err := w.removeStages(ctx); err != nil {
		return fmt.Errorf("remove stages that an earlier run left: %w", err)
	}
	for _, d := range [][2]string{{w.system, controllerName}, {w.system, gatewayName}, {w.functions, modelPool}} {
		if err := w.waitRollout(ctx, d[0], d[1]); err != nil {
			return err
		}
	}
	var last answer
	err = poll(ctx, func() bool {
		last = w.send(w.request(ctx, http.MethodGet, nil, "/healthz", nil))
		return last.status == http.StatusOK
	})
	if err != nil {
		return fmt.Errorf("wait for the gateway %s: %w: %s", w.gateway, err, last)
	}
	return nil
}

// waitRollout waits until a Deployment runs as it is written, with no pod of an older form left.
func (w *world) waitRollout(ctx context.Context, namespace, name string) error {
	state := "not seen"
	err := poll(ctx, func() bool {
		d, err := w.kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			state = err.Error()
			return false
		}
		pods, err := w.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		if err != nil {
			state = err.Error()
			return false
		}
		state = fmt.Sprintf("wants %d, %+v, %d pods", *d.Spec.Replicas, d.Status, len(pods.Items))
		return rolledOut(d, len(pods.Items))
	})
	if err != nil {
		return fmt.Errorf("wait for deployment %s/%s: %w: %s", namespace, name, err, state)
	}
	return nil
}

func rolledOut(d *appsv1.Deployment, pods int) bool {
	s, n := d.Status, *d.Spec.Replicas
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == n && s.AvailableReplicas == n && s.Replicas == n && pods == int(n)
}

// poll looks until ok, at most for patience.
func poll(ctx context.Context, ok func() bool) error { return pollFor(ctx, patience, ok) }

func pollFor(ctx context.Context, d time.Duration, ok func() bool) error {
	return wait.PollUntilContextTimeout(ctx, glance, d, true, func(context.Context) (bool, error) { return ok(), nil })
}

// eventually fails the test when ok does not come; ok tells what it saw last.
func eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	eventuallyFor(t, patience, what, ok)
}

// eventuallyFor is eventually for what takes its time.
func eventuallyFor(t *testing.T, d time.Duration, what string, ok func() (bool, string)) {
	t.Helper()
	var last string
	err := pollFor(t.Context(), d, func() (done bool) {
		done, last = ok()
		return done
	})
	if err != nil {
		t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
}

// afterwards runs f at the end of the test, when the test's own context is over.
func afterwards(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		if err := f(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
}

// ignore turns one expected error into success.
func ignore(err error, expected func(error) bool) error {
	if err != nil && expected(err) {
		return nil
	}
	return err
}

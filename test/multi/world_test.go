//go:build e2e

package multi_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/identity"
	"skipper/test/hollow"
	"skipper/test/router"
)

const (
	// patience bounds every wait; it says nothing about how fast Skipper is.
	patience = 2 * time.Minute
	glance   = 100 * time.Millisecond

	grpcPort, webPort = 50151, 18080
	deployment        = "hollow"
)

// The programs are built once for all tests.
var controllerBinary, extprocBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "skipper-multi-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	controllerBinary, extprocBinary = filepath.Join(dir, "controller"), filepath.Join(dir, "extproc")
	build := exec.Command("go", "build", "-o", dir, "skipper/cmd/controller", "skipper/cmd/extproc")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("build the programs: %w", err)
	}
	return m.Run(), nil
}

// networks counts the worlds, so that each has addresses of its own.
var networks atomic.Uint32

// world is a namespace with a hollow node, a pool, and controllers.
type world struct {
	t           *testing.T
	kube        kubernetes.Interface
	namespace   string
	node        *hollow.Node
	pods        *hollow.Pods
	controllers []*hollow.Controller
	start       []func() *hollow.Controller // of the controllers
	own         []*corev1.Pod               // of the controllers
	ips         []string
	creds       credentials.TransportCredentials // of the test's own calls
	before      hook                             // sees the controllers' requests to the API server
	after       hook                             // sees them when they have been answered
}

// hook is a function that may be set while it is in use.
type hook struct {
	f atomic.Pointer[func(*http.Request)]
}

func (h *hook) set(f func(*http.Request)) { h.f.Store(&f) }

func (h *hook) call(r *http.Request) {
	if f := h.f.Load(); f != nil {
		(*f)(r)
	}
}

// options of a world.
type options struct {
	pool, controllers int
	lag               time.Duration // of the controllers' watches, at most
	args              []string
	trust             *trust // nil: plaintext
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG names no cluster: %v", err)
	}
	config.QPS, config.Burst = -1, 0
	w := &world{t: t, kube: kubernetes.NewForConfigOrDie(config), pods: hollow.NewPods(), creds: insecure.NewCredentials()}
	if o.trust != nil {
		w.creds = o.trust.operator(t)
	}
	w.makeNamespace()
	w.makeNode()
	port := w.serve("0.0.0.0:0", w.pods)
	pool := w.node.Pool(deployment, int32(o.pool), int32(port))
	if _, err := w.kube.AppsV1().Deployments(w.namespace).Create(t.Context(), pool, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.startControllers(config, o)
	w.eventually("pool is filled", func() (bool, string) {
		n := 0
		for _, p := range w.list("skipper/deployment="+deployment, "") {
			if p.Status.PodIP != "" {
				n++
			}
		}
		return n >= o.pool, fmt.Sprint(n, " pods")
	})
	return w
}

// afterwards runs f at the end of the test, when its context is over.
func (w *world) afterwards(f func(context.Context) error) {
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f(ctx); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) makeNamespace() {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "skipper-multi-"}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.namespace = ns.Name
	w.afterwards(func(ctx context.Context) error {
		return w.kube.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{})
	})
}

func (w *world) makeNode() {
	w.t.Helper()
	node, err := hollow.NewNode(w.t.Context(), w.kube, w.namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	w.node = node
	w.afterwards(node.Remove)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// serve serves h until the end of the test, and returns the port.
func (w *world) serve(at string, h http.Handler) int {
	w.t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) }) // ends with Close
	w.t.Cleanup(func() {
		_ = s.Close()
		running.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func (w *world) startControllers(config *rest.Config, o options) {
	w.t.Helper()
	proxy, err := hollow.LagProxy(config, o.lag, hollow.Hooks{Before: w.before.call, After: w.after.call})
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	writeKubeconfig(w.t, kubeconfig, fmt.Sprintf("http://127.0.0.1:%d", w.serve("127.0.0.1:0", proxy)))
	key := filepath.Join(dir, "key.pem")
	if err := hollow.WriteKey(key); err != nil {
		w.t.Fatal(err)
	}
	network := networks.Add(1)
	for i := range o.controllers {
		ip := fmt.Sprintf("127.32.%d.%d", network, i+1)
		log, err := os.Create(filepath.Join(dir, ip+".log"))
		if err != nil {
			w.t.Fatal(err)
		}
		w.start = append(w.start, func() *hollow.Controller {
			return w.startController(hollow.ControllerConfig{
				Binary: controllerBinary, IP: ip, Port: grpcPort, WebPort: webPort, TLSDir: o.trust.dir(identity.Controller),
				Kubeconfig: kubeconfig, KeyFile: key, Namespace: w.namespace, Args: o.args, Log: log,
			})
		})
		w.t.Cleanup(func() { w.keepLog(log) })
		w.ips, w.controllers = append(w.ips, ip), append(w.controllers, w.start[i]())
	}
	w.joinRing(o.controllers)
}

func (w *world) startController(cfg hollow.ControllerConfig) *hollow.Controller {
	w.t.Helper()
	c, err := hollow.StartController(context.Background(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Kill)
	return c
}

// joinRing makes the controllers' pods when they are ready.
func (w *world) joinRing(n int) {
	w.t.Helper()
	for i, c := range w.controllers {
		w.eventually("controller is ready", func() (bool, string) {
			return httpOK(c.Web() + "/readyz")
		})
		p, err := w.kube.CoreV1().Pods(w.namespace).Create(w.t.Context(), w.node.Controller(w.ips[i]), metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		w.own = append(w.own, p)
	}
	for _, c := range w.controllers {
		client := w.client(c.Addr())
		w.eventually("all controllers are on the ring", func() (bool, string) {
			s, err := client.GetClusterState(w.t.Context(), &skipperpb.GetClusterStateRequest{})
			return err == nil && len(s.GetClusterState().GetControllerIps()) == n, fmt.Sprint(s.GetClusterState().GetControllerIps(), err)
		})
	}
}

// kill ends a controller as kill -9 does; its pod is said to be unready
// afterwards, as a kubelet would.
func (w *world) kill(i int) {
	w.t.Helper()
	w.controllers[i].Kill()
	if err := w.node.SetReady(w.t.Context(), w.own[i], false); err != nil {
		w.t.Fatal(err)
	}
}

// keepLog shows the end of a controller's log after a failure.
func (w *world) keepLog(log *os.File) {
	defer func() { _ = log.Close() }()
	if !w.t.Failed() {
		return
	}
	text, err := os.ReadFile(log.Name())
	if err != nil {
		w.t.Log(err)
		return
	}
	w.t.Logf("end of %s:\n%s", log.Name(), text[max(0, len(text)-20_000):])
}

func httpOK(url string) (bool, string) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return false, err.Error()
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK, r.Status
}

func writeKubeconfig(t *testing.T, path, server string) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	c.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
}

// client calls the controllers at these addresses as a router does.
func (w *world) client(addrs ...string) skipperpb.ControllerServiceClient {
	w.t.Helper()
	conn, err := router.DialWith(w.creds, addrs...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return skipperpb.NewControllerServiceClient(conn)
}

func (w *world) addrs() []string {
	var out []string
	for _, c := range w.controllers {
		out = append(out, c.Addr())
	}
	return out
}

func (w *world) function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: w.namespace, Deployment: deployment, Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}}
}

// ownedBy is a function of the controller with that index.
func (w *world) ownedBy(i int) *skipperpb.Function {
	r := ring.New(w.ips...)
	for n := 0; ; n++ {
		f := w.function(fmt.Sprint("owned", n))
		if ip, _ := r.Owner(fn.KeyOf(f).Hash()); ip == w.ips[i] {
			return f
		}
	}
}

// get asks for an instance as a router does, with the usual hold time.
func (w *world) get(c skipperpb.ControllerServiceClient, f *skipperpb.Function, exclude ...string) (*skipperpb.Instance, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f, ExcludeInstanceNames: exclude})
	return r.GetInstance(), err
}

func (w *world) list(labels, fields string) []corev1.Pod {
	w.t.Helper()
	pods, err := w.kube.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: labels, FieldSelector: fields})
	if err != nil {
		w.t.Fatal(err)
	}
	return pods.Items
}

// eventually fails the test when ok does not come; ok tells what it saw last.
func (w *world) eventually(what string, ok func() (bool, string)) {
	w.t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(w.t.Context(), glance, patience, true, func(context.Context) (done bool, _ error) {
		done, last = ok()
		return done, nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
}

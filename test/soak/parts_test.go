//go:build e2e

package soak

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// replica is a controller.
type replica struct {
	*Process
	ip      string
	watches *Gate
	pod     *corev1.Pod
}

func (r *replica) ready() (bool, string) {
	return httpOK(fmt.Sprintf("http://%s:%d/readyz", r.ip, controllerWeb))
}

// gateway is an Envoy with extproc beside it.
type gateway struct {
	url             string
	envoy, extproc  *Process
	toEnvoy, toProc *Link // between the controllers and each
	readyURL        string
	extprocWeb      string
}

func (w *world) startControllers(config *rest.Config, dir string, n int) {
	w.t.Helper()
	for i := range n {
		r := &replica{ip: fmt.Sprintf("%s.%d", w.network, i+1), watches: NewGate()}
		api, err := apiOf(config, r.watches)
		if err != nil {
			w.t.Fatal(err)
		}
		kubeconfig := filepath.Join(dir, r.ip+".kubeconfig")
		w.writeKubeconfig(kubeconfig, w.serve(api))
		r.Process = w.process(fmt.Sprint("controller-", i), binary("controller"),
			"--insecure-plaintext", "--host", r.ip, "--pod-ip", r.ip, "--port", fmt.Sprint(controllerRPC), "--web-port", fmt.Sprint(controllerWeb),
			"--kubeconfig", kubeconfig, "--namespace", w.home, "--function-namespaces", w.field,
			"--paseto-private-key-file", filepath.Join(dir, "key.pem"), "--controller-selector", "app.kubernetes.io/name=hollow-controller",
			"--heartbeat-timeout", beatTimeout.String(), "--hpa-downscale-stabilization=1s", "--scale-interval=1s",
			"--function-assign-timeout=2s", "--drain-timeout", drainTimeout.String(), "--table-staleness", w.options.controllerStaleness.String(),
		)
		w.controllers = append(w.controllers, r)
		if err := r.Start(); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, r := range w.controllers {
		w.eventually(r.Name+" is ready", r.ready)
		p, err := w.kube.CoreV1().Pods(w.home).Create(w.t.Context(), w.node.Controller(r.ip), metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		r.pod = p
	}
}

// serve serves h on the loopback network until the end of the test.
func (w *world) serve(h http.Handler) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: start}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) }) // ends with Close
	w.t.Cleanup(func() {
		_ = s.Close()
		running.Wait()
	})
	return "http://" + l.Addr().String()
}

func (w *world) writeKubeconfig(path, server string) {
	w.t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	c.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) link(ip string) *Link {
	w.t.Helper()
	var targets []string
	for _, r := range w.controllers {
		targets = append(targets, fmt.Sprintf("%s:%d", r.ip, controllerRPC))
	}
	l, err := NewLink(fmt.Sprintf("%s:%d", ip, controllerRPC), targets...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	return l
}

func (w *world) startGateway(i int) {
	w.t.Helper()
	id := fmt.Sprint("gateway-", i)
	sockets := envoytest.SocketDir(w.t)
	ports := envoytest.FreePorts(w.t, 3)
	g := &gateway{
		toProc: w.link(fmt.Sprintf("%s.%d", w.network, 101+i)), toEnvoy: w.link(fmt.Sprintf("%s.%d", w.network, 201+i)),
		url: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), readyURL: fmt.Sprintf("http://127.0.0.1:%d/ready", ports[1]),
		extprocWeb: fmt.Sprintf("http://127.0.0.1:%d", ports[2]),
	}
	g.extproc = w.process(id+"-extproc", binary("extproc"),
		"--insecure-plaintext", "--controller-service-host", g.toProc.Addr().IP.String(), "--controller-port", fmt.Sprint(controllerRPC),
		"--listen", filepath.Join(sockets, "extproc.sock"), "--web-host=127.0.0.1", "--web-port", fmt.Sprint(ports[2]),
		"--router-ip", g.toProc.Addr().IP.String(), "--envoy-node-id", id, "--heartbeat-interval=1s",
		"--hold-timeout", holdTimeout.String(), "--table-staleness", w.options.extprocStaleness.String(), "--lost-lease", drainTimeout.String(),
	)
	g.envoy = w.process(id+"-envoy", envoytest.Find(w.t), "-c", w.writeBootstrap(g, id, sockets, ports),
		"--disable-hot-restart", "--concurrency", "1", "--service-node", id, "--service-cluster", "soak")
	for _, p := range []*Process{g.extproc, g.envoy} {
		if err := p.Start(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.eventually(id+" is ready", func() (bool, string) {
		if ok, why := httpOK(g.readyURL); !ok {
			return false, "Envoy: " + why
		}
		return httpOK(g.extprocWeb + "/readyz")
	})
	w.gateways = append(w.gateways, g)
}

func (w *world) writeBootstrap(g *gateway, id, sockets string, ports []uint16) string {
	w.t.Helper()
	c := envoy.Default()
	c.NodeID, c.NodeCluster = id, "soak"
	c.HTTPPort, c.ReadyPort = ports[0], ports[1]
	c.Admin, c.Extproc = filepath.Join(sockets, "admin.sock"), filepath.Join(sockets, "extproc.sock")
	c.HoldTimeout, c.StreamIdleTimeout = holdTimeout, 2*patience
	c.ControllerHost, c.ControllerPort, c.ControllerPlaintext = g.toEnvoy.Addr().IP.String(), controllerRPC, true
	b, err := envoy.Bootstrap(c)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := envoy.YAML(b)
	if err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.t.TempDir(), id+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// inflict does the event to the world, and undoes it when its time is over.
func (w *world) inflict(ctx context.Context, e Event) {
	if e.Kind == KillPod {
		if what, ok := w.kubelet.Kill(ctx, e.Death); ok {
			w.ledger.Chaos(podKill, what)
		}
		return
	}
	begin, end := w.harm(ctx, e)
	w.ledger.Chaos(string(e.Kind), e.String())
	began := time.Now()
	begin()
	pause(ctx, e.For)
	end()
	w.t.Logf("%s chaos %s, over after %s", began.Format("15:04:05.000"), e, time.Since(began).Round(time.Millisecond))
}

// harm is how an event begins and ends.
func (w *world) harm(ctx context.Context, e Event) (begin, end func()) {
	switch e.Kind {
	case RestartController, KillController:
		r := w.controllers[e.Target]
		return func() { w.endController(ctx, r, signalOf(e.Kind)) }, func() { w.startController(ctx, r) }
	case StopController:
		r := w.controllers[e.Target]
		return func() { r.Signal(syscall.SIGSTOP) }, func() { r.Signal(syscall.SIGCONT) }
	case FreezeWatch:
		g := w.controllers[e.Target].watches
		return g.Shut, g.Open
	case PartitionExtproc:
		return w.gateways[e.Target].toProc.Shut, w.gateways[e.Target].toProc.Open
	case PartitionEnvoy:
		return w.gateways[e.Target].toEnvoy.Shut, w.gateways[e.Target].toEnvoy.Open
	case PartitionBoth:
		g := w.gateways[e.Target]
		return func() { g.toProc.Shut(); g.toEnvoy.Shut() }, func() { g.toProc.Open(); g.toEnvoy.Open() }
	case RestartExtproc, KillExtproc:
		return w.restart(w.gateways[e.Target].extproc, e.Kind)
	default:
		return w.restart(w.gateways[e.Target].envoy, e.Kind)
	}
}

func signalOf(k Kind) syscall.Signal {
	switch k {
	case KillController, KillExtproc, KillEnvoy:
		return syscall.SIGKILL
	default:
		return syscall.SIGTERM
	}
}

func (w *world) restart(p *Process, k Kind) (begin, end func()) {
	return func() { p.End(signalOf(k)) }, func() {
		if err := p.Start(); err != nil {
			w.t.Error(err)
		}
	}
}

// endController takes the pod off the ring as a kubelet would: before the
// signal to stop, and after a kill.
func (w *world) endController(ctx context.Context, r *replica, s syscall.Signal) {
	if s == syscall.SIGKILL {
		r.End(s)
	}
	w.sayReady(ctx, r, false)
	if s != syscall.SIGKILL {
		r.End(s)
	}
}

func (w *world) startController(ctx context.Context, r *replica) {
	if err := r.Start(); err != nil {
		w.t.Error(err)
		return
	}
	for ok := false; !ok && pause(ctx, glance); {
		ok, _ = r.ready()
	}
	w.sayReady(ctx, r, true)
}

func (w *world) sayReady(ctx context.Context, r *replica, ready bool) {
	if err := w.node.SetReady(ctx, r.pod, ready); err != nil && ctx.Err() == nil {
		w.t.Error(err)
	}
}

// storm inflicts a plan. What is to happen to a part that something happens to
// already is left out.
func (w *world) storm(ctx context.Context, plan []Event) {
	var running sync.WaitGroup
	var mu sync.Mutex
	busy := map[string]bool{} // guarded by mu
	began := time.Now()
	for _, e := range plan {
		if !pause(ctx, e.At-time.Since(began)) {
			break
		}
		part := e.part()
		mu.Lock()
		taken := busy[part]
		busy[part] = part != ""
		mu.Unlock()
		if taken {
			continue
		}
		running.Go(func() {
			w.inflict(ctx, e)
			mu.Lock()
			defer mu.Unlock()
			busy[part] = false
		})
	}
	running.Wait()
}

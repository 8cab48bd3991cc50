package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"skipper/controller/config"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

func TestMain(m *testing.M) {
	// A queue that is shut down with draining lets its timer goroutine go only
	// at its next turn, up to 10 s later.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"))
}

const namespace = "functions"

// world is a running controller, an API server and pods that answer.
type world struct {
	t      *testing.T
	api    *fake.Clientset
	conn   *grpc.ClientConn
	client skipperpb.ControllerServiceClient
	web    string
	stop   func() error
	usage  metricsclient.PodMetricsesGetter // nil: there is no metrics API

	mu     sync.Mutex
	status int // that pods answer assignments with
	posts  []*http.Request
	posted chan struct{} // a token for each post
	hold   chan struct{} // pods answer when it is closed; nil: at once
}

// startWorld runs a controller over a pool of n pods.
func startWorld(t *testing.T, n int, change func(*config.Config)) *world {
	t.Helper()
	w := newWorld(t)
	w.start(n, change)
	return w
}

func (w *world) start(n int, change func(*config.Config)) {
	t := w.t
	t.Helper()
	for i := range n {
		w.addPod(i)
	}
	cfg := testConfig(privateKey(t))
	if change != nil {
		change(cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	l, err := listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.run(cfg, l)
	w.connect("passthrough:///"+l.grpc.Addr().String(), insecure.NewCredentials())
	w.web = "http://" + l.web.Addr().String()
}

// newWorld has an API server and no controller yet.
func newWorld(t *testing.T) *world {
	return &world{t: t, api: fake.NewClientset(replicaSet()), status: http.StatusOK, posted: make(chan struct{}, 1000)}
}

func testConfig(key string) *config.Config {
	cfg := config.Default()
	cfg.Host, cfg.Port, cfg.WebPort, cfg.Namespace, cfg.PodIP = "127.0.0.1", 0, 0, "skipper-system", "10.0.0.1"
	cfg.FunctionNamespaces, cfg.PasetoPrivateKey, cfg.InsecurePlaintext = []string{namespace}, key, true
	return cfg
}

func (w *world) run(cfg *config.Config, l listeners) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	logger := zaptest.NewLogger(w.t)
	go func() {
		done <- run(ctx, settings{Config: cfg}, clients{w.api, w.api.CoreV1(), w.usage, newAPICalls()}, l, logger)
	}()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	w.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			w.t.Errorf("run = %v", err)
		}
	})
}

// connect makes the connection that the test calls through.
func (w *world) connect(target string, c credentials.TransportCredentials) {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(c))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	w.conn, w.client = conn, skipperpb.NewControllerServiceClient(conn)
}

// ServeHTTP is a pod's assignment endpoint.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.posts = append(w.posts, r)
	status, hold := w.status, w.hold
	w.mu.Unlock()
	w.posted <- struct{}{}
	if hold != nil {
		<-hold
	}
	rw.WriteHeader(status)
}

func (w *world) addPod(i int) {
	w.t.Helper()
	s := httptest.NewServer(w)
	w.t.Cleanup(s.Close)
	p := idlePod(i, s.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := w.api.CoreV1().Pods(namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func replicaSet() *appsv1.ReplicaSet {
	r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-1", UID: "rs-1"}}
	r.Spec.Template.Labels = map[string]string{pool.LabelDeployment: "echo"}
	return r
}

func idlePod(i, port int) *corev1.Pod {
	controller := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint("echo-", i), UID: types.UID(fmt.Sprint("uid-", i)),
			Labels:      map[string]string{pool.LabelDeployment: "echo", corev1.LabelTopologyZone: zone},
			Annotations: map[string]string{pool.AnnotationPort: strconv.Itoa(port)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "echo-1", UID: "rs-1", Controller: &controller},
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "127.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func privateKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: namespace, Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3},
	}
}

// get asks for an instance as extproc does.
func (w *world) get(f *skipperpb.Function) (*skipperpb.Instance, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	r, err := w.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f}, grpc.WaitForReady(true))
	return r.GetInstance(), err
}

// until reads pods from the API server, again at each change, until ok.
func (w *world) until(what string, ok func([]corev1.Pod) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	changes, err := w.api.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer changes.Stop()
	for {
		list, err := w.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		if ok(list.Items) {
			return
		}
		select {
		case <-changes.ResultChan():
		case <-ctx.Done():
			w.t.Fatalf("%s: not within 30 s: %v", what, list.Items)
		}
	}
}

func tenantPods(pods []corev1.Pod, tenant string) []corev1.Pod {
	var out []corev1.Pod
	for _, p := range pods {
		if p.Labels[pool.LabelTenant] == tenant {
			out = append(out, p)
		}
	}
	return out
}

// subscription is a delta xDS stream that acknowledges what it gets.
type subscription struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (w *world) subscribe(typeURL string, names ...string) *subscription {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	w.t.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}); err != nil {
		w.t.Fatal(err)
	}
	return &subscription{w.t, s}
}

// until reads responses until one has a resource that is as wanted.
func (s *subscription) until(what string, ok func(*discoveryv3.Resource) bool) {
	s.t.Helper()
	for {
		r, err := s.stream.Recv()
		if err != nil {
			s.t.Fatalf("%s: %v", what, err)
		}
		if err := s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}); err != nil {
			s.t.Fatalf("%s: acknowledge: %v", what, err)
		}
		for _, res := range r.GetResources() {
			if ok(res) {
				return
			}
		}
	}
}

// zone is what all pods tell.
const zone = "z1"

// holds tells whether a list of instances has exactly these UIDs, each with the
// zone of its pod.
func holds(t *testing.T, uids ...string) func(*discoveryv3.Resource) bool {
	return func(r *discoveryv3.Resource) bool {
		var l skipperpb.FunctionInstances
		if err := r.GetResource().UnmarshalTo(&l); err != nil {
			t.Errorf("read resource %s: %v", r.GetName(), err)
			return false
		}
		var got []string
		for _, i := range l.GetInstances() {
			if i.GetZone() != zone {
				return false
			}
			got = append(got, i.GetUid())
		}
		return strings.Join(got, " ") == strings.Join(uids, " ")
	}
}

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/config"
	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// crowd is several controllers over one API server, each at an address of its
// own.
type crowd struct {
	*world
	replicas []*world // one for each controller; they share the API server
	ips      []string
}

// startCrowd runs n controllers over a pool of pods, until each knows of all.
func startCrowd(t *testing.T, n, pods int, change func(*config.Config)) *crowd {
	t.Helper()
	c := &crowd{world: newWorld(t)}
	for i := range pods {
		c.addPod(i)
	}
	port, key := uint16(0), privateKey(t)
	for i := range n {
		ip := fmt.Sprintf("127.0.1.%d", i+1)
		c.ips = append(c.ips, ip)
		c.addReplica(ip)
		cfg := testConfig(key)
		cfg.Host, cfg.PodIP, cfg.Port = ip, ip, port
		if change != nil {
			change(cfg)
		}
		l, err := listen(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		port = portOf(l.grpc)
		w := &world{t: t, api: c.api, web: "http://" + l.web.Addr().String()}
		w.run(cfg, l)
		w.connect("passthrough:///"+net.JoinHostPort(ip, strconv.Itoa(int(port))), peerCredentials(t, cfg))
		c.replicas = append(c.replicas, w)
	}
	for _, r := range c.replicas {
		r.untilRing(n)
	}
	return c
}

// addReplica shows a controller's own pod, ready.
func (w *world) addReplica(ip string) {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "skipper-system", Name: "controller-" + ip, Labels: map[string]string{"app.kubernetes.io/name": "skipper-controller"}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	if _, err := w.api.CoreV1().Pods(p.Namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// untilRing asks the controller until it has n members on its ring.
func (w *world) untilRing(n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	for {
		s, err := w.client.GetClusterState(ctx, &skipperpb.GetClusterStateRequest{}, grpc.WaitForReady(true))
		if err != nil {
			w.t.Fatalf("%d members on the ring: %v", n, err)
		}
		if len(s.GetClusterState().GetControllerIps()) == n {
			return
		}
	}
}

// ownedBy is a function of the replica with that index.
func (c *crowd) ownedBy(i int) *skipperpb.Function {
	r := ring.New(c.ips...)
	for n := 0; ; n++ {
		f := function(fmt.Sprint("t", n))
		if ip, _ := r.Owner(fn.KeyOf(f).Hash()); ip == c.ips[i] {
			return f
		}
	}
}

func TestReplicasShareOneAssignment(t *testing.T) {
	c := startCrowd(t, 3, 5, nil)
	got := make([]string, 30)
	var all sync.WaitGroup
	for n := range got {
		all.Go(func() {
			i, err := c.replicas[n%3].get(c.ownedBy(1))
			if err != nil {
				t.Error(err)
			}
			got[n] = i.GetUid()
		})
	}
	all.Wait()
	for _, uid := range got {
		if uid != got[0] {
			t.Fatalf("callers got %v, want one pod", got)
		}
	}
	if len(c.posts) != 1 {
		t.Errorf("%d assignments, want 1", len(c.posts))
	}
}

func TestOneshotIsReleasedAtAnyReplicaAtOnce(t *testing.T) {
	c := startCrowd(t, 3, 9, nil)
	for n := range 9 {
		f := c.ownedBy(n % 3)
		f.Oneshot = true
		i, err := c.replicas[(n+1)%3].get(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.replicas[(n+2)%3].client.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: i}); err != nil {
			t.Error(err)
		}
	}
	c.until("all deleted", func(pods []corev1.Pod) bool { return len(pods) == 0 })
}

func TestEveryReplicaKnowsOfEveryHeartbeat(t *testing.T) {
	c := startCrowd(t, 3, 0, nil)
	for n, r := range c.replicas {
		if _, err := r.client.Heartbeat(t.Context(), &skipperpb.HeartbeatRequest{
			RouterIp: fmt.Sprint("10.9.0.", n), Heartbeats: []*skipperpb.Heartbeat{{Function: function("t")}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range c.replicas {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		for known := 0; known < 3; {
			s, err := r.client.GetClusterState(ctx, &skipperpb.GetClusterStateRequest{})
			if err != nil {
				t.Fatalf("%d routers known: %v", known, err)
			}
			for _, f := range s.GetClusterState().GetSupervisors() {
				known = len(f.GetRouterHeartbeats())
			}
		}
		cancel()
	}
}

// A replica that stops leaves the ring; its functions are the others' at once.
func TestStoppedReplicaIsReplaced(t *testing.T) {
	c := startCrowd(t, 3, 6, nil)
	f := c.ownedBy(2)
	if err := c.replicas[2].stop(); err != nil {
		t.Error(err)
	}
	// Its pod still counts as ready: nobody has noticed yet.
	i, err := c.replicas[0].get(f)
	if err != nil || len(c.posts) != 1 {
		t.Fatalf("%v, %v, %d assignments, want one", i, err, len(c.posts))
	}
	if err := c.api.CoreV1().Pods("skipper-system").Delete(t.Context(), "controller-"+c.ips[2], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.replicas[:2] {
		r.untilRing(2)
	}
}

func TestSingleControllerModeIsAloneOnTheRing(t *testing.T) {
	c := startCrowd(t, 1, 1, func(cfg *config.Config) { cfg.SingleControllerMode = true })
	c.addReplica("10.0.0.9")
	i, err := c.replicas[0].get(function("t")) // forwarded to nobody
	if err != nil || i.GetUid() == "" {
		t.Errorf("GetInstance = %v, %v", i, err)
	}
	c.replicas[0].untilRing(1)
}

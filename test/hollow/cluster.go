package hollow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	skipperpb "skipper/proto"
	"skipper/test/router"
)

// ClusterConfig of a Cluster.
type ClusterConfig struct {
	Kube kubernetes.Interface
	// Kubeconfig is the path that controllers are given.
	Kubeconfig string
	// Binary is the controller's program.
	Binary string
	// Network makes the controllers' addresses 127.33.Network.1 and up.
	Network uint8
	// Controllers is how many run, Pool how many pods there will ever be: what
	// is claimed is not made again.
	Controllers, Pool int
	// Args are further flags of controllers.
	Args []string
	// Dir takes logs and keys.
	Dir string
}

// Cluster is a namespace with a hollow node, a pool, and controllers that share
// it. Not safe for concurrent use.
type Cluster struct {
	cfg         ClusterConfig
	Namespace   string
	Pods        *Pods
	Controllers []*Controller
	ips         []string

	node    *Node
	own     []*corev1.Pod // of the controllers
	server  *http.Server
	stop    context.CancelFunc
	running sync.WaitGroup
}

// deploymentName is the cluster's pool.
const deploymentName = "hollow"

const (
	grpcPort, webPort = 50152, 18081
	// fillTime bounds the wait for a pool of thousands.
	fillTime = 10 * time.Minute
	glance   = 100 * time.Millisecond
)

// StartCluster returns when the pool is full and the controllers are on the
// ring. Close must be called, also after an error.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	c := &Cluster{cfg: cfg, Pods: NewPods()}
	for _, step := range []func(context.Context) error{c.makeNamespace, c.startNode, c.makePool, c.startControllers, c.joinRing, c.fill} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Close removes all that the cluster has made; ctx bounds it.
func (c *Cluster) Close(ctx context.Context) error {
	for _, k := range c.Controllers {
		k.Kill()
	}
	var errs []error
	if c.Namespace != "" {
		errs = append(errs, c.cfg.Kube.CoreV1().Namespaces().Delete(ctx, c.Namespace, metav1.DeleteOptions{}))
	}
	if c.node != nil {
		errs = append(errs, c.node.Remove(ctx))
	}
	if c.stop != nil {
		c.stop()
	}
	if c.server != nil {
		_ = c.server.Close() // its listener is all that could fail
	}
	c.running.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) makeNamespace(ctx context.Context) error {
	ns, err := c.cfg.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "skipper-hollow-"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	c.Namespace = ns.Name
	return nil
}

func (c *Cluster) startNode(ctx context.Context) (err error) {
	if c.node, err = NewNode(ctx, c.cfg.Kube, c.Namespace); err != nil {
		return err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.running.Go(func() { _ = c.node.Run(life) }) // pods that do not become ready tell
	return nil
}

func (c *Cluster) makePool(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "0.0.0.0:0")
	if err != nil {
		return fmt.Errorf("listen for pods: %w", err)
	}
	c.server = &http.Server{Handler: c.Pods, ReadHeaderTimeout: time.Minute}
	c.running.Go(func() { _ = c.server.Serve(l) }) // ends with Close
	port := l.Addr().(*net.TCPAddr).Port
	pool := c.node.Pool(deploymentName, int32(c.cfg.Pool), int32(port)) //nolint:gosec // a port, and as many pods as a test has
	if _, err := c.cfg.Kube.AppsV1().Deployments(c.Namespace).Create(ctx, pool, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pool: %w", err)
	}
	return nil
}

func (c *Cluster) startControllers(ctx context.Context) error {
	key := filepath.Join(c.cfg.Dir, c.Namespace+".pem")
	if err := WriteKey(key); err != nil {
		return err
	}
	for i := range c.cfg.Controllers {
		ip := fmt.Sprintf("127.33.%d.%d", c.cfg.Network, i+1)
		log, err := os.Create(filepath.Join(c.cfg.Dir, ip+".log"))
		if err != nil {
			return fmt.Errorf("create log: %w", err)
		}
		k, err := StartController(context.WithoutCancel(ctx), ControllerConfig{
			Binary: c.cfg.Binary, IP: ip, Port: grpcPort, WebPort: webPort,
			Kubeconfig: c.cfg.Kubeconfig, KeyFile: key, Namespace: c.Namespace, Args: c.cfg.Args, Log: log,
		})
		if err != nil {
			return errors.Join(err, log.Close())
		}
		c.Controllers, c.ips = append(c.Controllers, k), append(c.ips, ip)
	}
	return nil
}

// joinRing makes the controllers' pods and waits until each knows all others.
func (c *Cluster) joinRing(ctx context.Context) error {
	for _, ip := range c.ips {
		p, err := c.cfg.Kube.CoreV1().Pods(c.Namespace).Create(ctx, c.node.Controller(ip), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create pod of controller %s: %w", ip, err)
		}
		c.own = append(c.own, p)
	}
	for _, k := range c.Controllers {
		conn, err := router.Dial(k.Addr())
		if err != nil {
			return err
		}
		client := skipperpb.NewControllerServiceClient(conn)
		err = c.await(ctx, "all controllers are on the ring", func() bool {
			s, err := client.GetClusterState(ctx, &skipperpb.GetClusterStateRequest{})
			return err == nil && len(s.GetClusterState().GetControllerIps()) == len(c.ips)
		})
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
	return nil
}

// fill waits for the pool, and then forbids further pods.
func (c *Cluster) fill(ctx context.Context) error {
	err := c.await(ctx, "pool is filled", func() bool {
		pods, err := c.List(ctx, "skipper/deployment="+deploymentName)
		ready := 0
		for i := range pods {
			if pods[i].Status.PodIP != "" {
				ready++
			}
		}
		return err == nil && ready >= c.cfg.Pool
	})
	if err != nil {
		return err
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "no-more"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(c.cfg.Pool+len(c.own)), resource.DecimalSI)},
	}}
	if _, err := c.cfg.Kube.CoreV1().ResourceQuotas(c.Namespace).Create(ctx, quota, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create quota: %w", err)
	}
	return nil
}

// List returns the namespace's pods with these labels, as a cache has them.
func (c *Cluster) List(ctx context.Context, labels string) ([]corev1.Pod, error) {
	pods, err := c.cfg.Kube.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels, ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods.Items, nil
}

// Addrs are where the controllers serve gRPC.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, k := range c.Controllers {
		out = append(out, k.Addr())
	}
	return out
}

// IPs are the controllers' addresses on the ring.
func (c *Cluster) IPs() []string { return c.ips }

// Function is one of the pool's.
func (c *Cluster) Function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: c.Namespace, Deployment: deploymentName, Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}}
}

// Kill ends a controller as kill -9 does, and says after notice that its pod is
// not ready, as a kubelet would.
func (c *Cluster) Kill(ctx context.Context, i int, notice time.Duration) error {
	c.Controllers[i].Kill()
	timer := time.NewTimer(notice)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.node.SetReady(ctx, c.own[i], false)
}

func (c *Cluster) await(ctx context.Context, what string, ok func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, glance, fillTime, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

package hollow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// AnnotationIP gives a pod a chosen address instead of the next free one.
	AnnotationIP = "hollow/ip"
	// workers write pod statuses at once.
	workers = 16
	// renewal of the node's lease, well below the 40 s after which the node
	// would count as lost.
	renewal      = 10 * time.Second
	leaseSeconds = 40
)

// Node plays the kubelet of a node that does not exist, for pods of one
// namespace. Safe for concurrent use.
type Node struct {
	kube      kubernetes.Interface
	namespace string
	name      string

	mu sync.Mutex
	// The fields below are guarded by mu.
	next  uint32               // number of the next free address
	known map[types.UID]string // addresses of pods
}

// NewNode registers the node. Run must be running for its pods to become ready,
// and Remove removes it.
func NewNode(ctx context.Context, kube kubernetes.Interface, namespace string) (*Node, error) {
	n := &Node{kube: kube, namespace: namespace, name: "hollow-" + namespace, known: map[types.UID]string{}}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}
	if _, err := kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create node %s: %w", n.name, err)
	}
	status, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Hollow"}},
	}})
	if err == nil {
		_, err = kube.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		return nil, fmt.Errorf("patch status of node %s: %w", n.name, err)
	}
	return n, n.renew(ctx)
}

// Remove removes the node; one that is gone is a success.
func (n *Node) Remove(ctx context.Context) error {
	return errors.Join(
		ignoreGone(n.kube.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}), "delete node "+n.name),
		ignoreGone(n.leases().Delete(ctx, n.name, metav1.DeleteOptions{}), "delete lease of node "+n.name),
	)
}

func ignoreGone(err error, doing string) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (n *Node) leases() coordinationv1client.LeaseInterface {
	return n.kube.CoordinationV1().Leases("kube-node-lease")
}

// Run keeps the node alive, makes its pods ready, and lets go of those that are
// to be deleted, until the context ends.
func (n *Node) Run(ctx context.Context) error {
	todo := make(chan *corev1.Pod) // unbuffered: the watch waits for the workers
	var running sync.WaitGroup
	running.Go(func() { n.keepAlive(ctx) })
	for range workers {
		running.Go(func() {
			for p := range todo {
				n.play(ctx, p)
			}
		})
	}
	err := n.follow(ctx, todo)
	close(todo)
	running.Wait()
	return err
}

// follow hands on every pod of the node, again at each change.
func (n *Node) follow(ctx context.Context, todo chan<- *corev1.Pod) error {
	for ctx.Err() == nil {
		events, err := n.kube.CoreV1().Pods(n.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return fmt.Errorf("watch pods of node %s: %w", n.name, err)
		}
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				todo <- p
			}
		}
		events.Stop()
	}
	return nil
}

// play does what a kubelet would do next with the pod. What fails is done at
// the pod's next change, or was made needless by one.
func (n *Node) play(ctx context.Context, p *corev1.Pod) {
	switch {
	case p.DeletionTimestamp != nil:
		now := metav1.NewDeleteOptions(0)
		now.Preconditions = metav1.NewUIDPreconditions(string(p.UID))
		_ = n.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, *now)
	case p.Status.PodIP == "":
		_ = n.SetReady(ctx, p, true)
	}
}

// SetReady writes the pod's status: running at its address, and ready or not.
func (n *Node) SetReady(ctx context.Context, p *corev1.Pod, ready bool) error {
	condition := corev1.ConditionFalse
	if ready {
		condition = corev1.ConditionTrue
	}
	now := metav1.Now()
	ip := n.addressOf(p)
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: condition, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: condition, LastTransitionTime: now},
		},
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	if _, err := n.kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("patch status of pod %s: %w", p.Name, err)
	}
	return nil
}

// addressOf gives each pod an address that no other pod of the node ever had:
// 127.64.0.1 and up.
func (n *Node) addressOf(p *corev1.Pod) string {
	if ip := p.Annotations[AnnotationIP]; ip != "" {
		return ip
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if ip := n.known[p.UID]; ip != "" {
		return ip
	}
	n.next++
	ip := fmt.Sprintf("127.%d.%d.%d", 64+n.next>>16&0x3f, n.next>>8&0xff, n.next&0xff)
	n.known[p.UID] = ip
	return ip
}

func (n *Node) keepAlive(ctx context.Context) {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = n.renew(ctx) // the next one will do
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) renew(ctx context.Context) error {
	leases := n.leases()
	seconds, now := int32(leaseSeconds), metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err == nil {
		_, err = leases.Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: spec}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("renew lease of node %s: %w", n.name, err)
	}
	return nil
}

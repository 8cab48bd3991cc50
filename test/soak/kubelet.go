package soak

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"skipper/test/hollow"
)

// labelImage says which image a pod of the range runs.
const labelImage = "soak/image"

// Death is how a pod is killed.
type Death string

// The deaths. In each the address goes to the next pod at once when the process
// has ended.
const (
	// Evicted pods are deleted by the API with a grace period; the process ends
	// before the object goes, as with a kubelet.
	Evicted Death = "evicted"
	// Forced pods are deleted by the API without a grace period; the process
	// serves on for a moment after the object is gone.
	Forced Death = "forced"
	// Crashed pods lose their process and their address before the API server
	// hears of anything.
	Crashed Death = "crashed"
)

// Deaths lists all.
func Deaths() []Death { return []Death{Evicted, Forced, Crashed} }

// lag is, at most, how far a process and its object are apart at their end.
const lag = 300 * time.Millisecond

// KubeletConfig describes a Kubelet.
type KubeletConfig struct {
	Kube kubernetes.Interface
	// Node writes statuses; it must not run for the same namespace.
	Node      *hollow.Node
	Namespace string
	Port      uint16
	Keys      []ed25519.PublicKey
	Addresses *Addresses
	Visit     func(Visit) Verdict
	// Seed of what is left to chance.
	Seed uint64
	// Problem is told of what should not fail.
	Problem func(error)
}

// Kubelet gives pods of one namespace a process each and an address out of a
// range that is too small for them: a pod that finds none waits for the next.
type Kubelet struct {
	cfg     KubeletConfig
	running sync.WaitGroup

	mu sync.Mutex
	// The fields below are guarded by mu.
	rand      *rand.Rand
	residents map[types.UID]*resident
	seen      map[types.UID]bool // pods that have or had an address
	waiting   []*corev1.Pod
	stopped   bool
}

// resident is a pod that has an address.
type resident struct {
	pod    *corev1.Pod
	ip     string
	server *Pod
	tenant string
	ending bool
}

// NewKubelet does nothing before Run.
func NewKubelet(cfg KubeletConfig) *Kubelet {
	return &Kubelet{cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 1)), residents: map[types.UID]*resident{}, seen: map[types.UID]bool{}}
}

// Run plays the kubelet until the context ends, and then ends all processes.
func (k *Kubelet) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(k.cfg.Kube, 0, informers.WithNamespace(k.cfg.Namespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.see(ctx, o) },
		UpdateFunc: func(_, o any) { k.see(ctx, o) },
		DeleteFunc: func(o any) { k.gone(ctx, o) },
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	k.stop()
	return nil
}

func (k *Kubelet) stop() {
	k.mu.Lock()
	k.stopped, k.waiting = true, nil
	k.mu.Unlock()
	k.running.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.residents {
		r.server.Stop()
	}
}

// see is told of a pod that is there.
func (k *Kubelet) see(ctx context.Context, o any) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.residents[p.UID]
	switch {
	case p.DeletionTimestamp != nil:
		k.forgetLocked(p.UID)
		if r == nil {
			k.goLocked(func() { k.remove(ctx, p) })
		} else if k.endLocked(r) {
			late := k.momentLocked()
			k.goLocked(func() {
				k.vacate(ctx, r)
				pause(ctx, late)
				k.remove(ctx, p)
			})
		}
	case !k.seen[p.UID] && !k.waitsLocked(p.UID):
		k.waiting = append(k.waiting, p)
		k.settleLocked(ctx)
	}
}

// gone is told of a pod that is no more.
func (k *Kubelet) gone(ctx context.Context, o any) {
	if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = t.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(p.UID)
	delete(k.seen, p.UID)
	if r := k.residents[p.UID]; r != nil && k.endLocked(r) {
		late := k.momentLocked()
		k.goLocked(func() {
			pause(ctx, late)
			k.vacate(ctx, r)
		})
	}
}

// Kill ends one of the pods that have a tenant, whichever; without one it is
// false. It returns before the pod has ended.
func (k *Kubelet) Kill(ctx context.Context, how Death) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var assigned []*resident
	for _, uid := range slices.Sorted(maps.Keys(k.residents)) {
		if r := k.residents[uid]; r.tenant != "" && !r.ending {
			assigned = append(assigned, r)
		}
	}
	if len(assigned) == 0 {
		return "", false
	}
	r := assigned[k.rand.IntN(len(assigned))]
	switch how {
	case Evicted:
		k.goLocked(func() { k.delete(ctx, r.pod, nil) })
	case Forced:
		k.goLocked(func() { k.remove(ctx, r.pod) })
	case Crashed:
		r.ending = true
		late, says := k.momentLocked(), k.rand.IntN(2) == 0
		k.goLocked(func() { k.crash(ctx, r, late, says) })
	}
	return fmt.Sprintf("%s %s of %s at %s", how, r.pod.Name, r.tenant, r.ip), true
}

// crash ends the process; the object is marked as failed first, or not.
func (k *Kubelet) crash(ctx context.Context, r *resident, late time.Duration, says bool) {
	k.vacate(ctx, r)
	pause(ctx, late)
	if says {
		k.fail(ctx, r.pod)
		pause(ctx, late)
	}
	k.remove(ctx, r.pod)
}

// Residents is how many pods have an address, and how many of them a tenant.
func (k *Kubelet) Residents() (all, assigned int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.residents {
		if r.tenant != "" {
			assigned++
		}
	}
	return len(k.residents), assigned
}

// endLocked is true for the first one who ends the pod.
func (k *Kubelet) endLocked(r *resident) bool {
	first := !r.ending
	r.ending = true
	return first
}

func (k *Kubelet) momentLocked() time.Duration {
	return time.Duration(k.rand.Int64N(int64(lag)))
}

// goLocked runs f; Run waits for it.
func (k *Kubelet) goLocked(f func()) {
	if !k.stopped {
		k.running.Go(f)
	}
}

func (k *Kubelet) waitsLocked(uid types.UID) bool {
	return slices.ContainsFunc(k.waiting, func(p *corev1.Pod) bool { return p.UID == uid })
}

func (k *Kubelet) forgetLocked(uid types.UID) {
	k.waiting = slices.DeleteFunc(k.waiting, func(p *corev1.Pod) bool { return p.UID == uid })
}

// settleLocked gives those that wait longest what is free.
func (k *Kubelet) settleLocked(ctx context.Context) {
	for len(k.waiting) > 0 && !k.stopped {
		p := k.waiting[0]
		ip, ok := k.cfg.Addresses.Take(p.Name, string(p.UID), time.Now())
		if !ok {
			return
		}
		k.waiting = k.waiting[1:]
		if err := k.moveInLocked(ctx, p, ip); err != nil {
			k.cfg.Problem(err)
			k.cfg.Addresses.Release(ip, time.Now())
			return
		}
	}
}

func (k *Kubelet) moveInLocked(ctx context.Context, p *corev1.Pod, ip string) error {
	r := &resident{pod: p, ip: ip}
	server, err := StartPod(PodConfig{ //nolint:contextcheck // it runs until it is killed
		Name: p.Name, UID: string(p.UID), Addr: net.JoinHostPort(ip, strconv.Itoa(int(k.cfg.Port))),
		Image: Image(p.Labels[labelImage]), Keys: k.cfg.Keys, Visit: k.cfg.Visit,
		Assigned: func(tenant string) { k.assigned(r, tenant) },
	})
	if err != nil {
		return err
	}
	r.server = server
	k.residents[p.UID], k.seen[p.UID] = r, true
	k.goLocked(func() { k.sayReady(ctx, p, ip) })
	return nil
}

func (k *Kubelet) assigned(r *resident, tenant string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.tenant = tenant
	if k.residents[r.pod.UID] == r {
		k.cfg.Addresses.Assigned(r.ip, tenant, time.Now())
	}
}

// vacate ends the process and gives its address to the next pod.
func (k *Kubelet) vacate(ctx context.Context, r *resident) {
	r.server.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.residents, r.pod.UID)
	k.cfg.Addresses.Release(r.ip, time.Now())
	k.settleLocked(ctx)
}

func (k *Kubelet) sayReady(ctx context.Context, p *corev1.Pod, ip string) {
	p = p.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[hollow.AnnotationIP] = ip
	k.report(k.cfg.Node.SetReady(ctx, p, true))
}

func (k *Kubelet) fail(ctx context.Context, p *corev1.Pod) {
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Crashed"}})
	if err == nil {
		_, err = k.cfg.Kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	k.report(err)
}

// remove deletes the object at once.
func (k *Kubelet) remove(ctx context.Context, p *corev1.Pod) {
	now := int64(0)
	k.delete(ctx, p, &now)
}

func (k *Kubelet) delete(ctx context.Context, p *corev1.Pod, grace *int64) {
	k.report(k.cfg.Kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	}))
}

// report tells of an error, unless the pod or the run was over.
func (k *Kubelet) report(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !errors.Is(err, context.Canceled) {
		k.cfg.Problem(err)
	}
}

//go:build e2e

package e2e_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Labels and annotations of the contract that tests read, written out since outsiders rely on them.
const (
	poolLabel      = "skipper/deployment"
	tenantLabel    = "skipper/tenant"
	functionNote   = "skipper/function"
	assignedAtNote = "skipper/assigned-at"
	readyAtNote    = "skipper/ready-at"
	replicaSetNote = "skipper/replica-set"
	tenantNote     = "skipper/tenant"
	protocolNote   = "skipper/protocol"
	settleNote     = "skipper-e2e/settle"
	drainingAtNote = "skipper/draining-at"
)

// ledger remembers every pod that a pool ever had, from a watch, so that a claim that was undone does not go unseen.
// Safe for concurrent use.
type ledger struct {
	mu   sync.Mutex
	pods map[types.UID]entry
}

// entry is the last known state of a pod, which callers do not change.
type entry struct {
	pod  *corev1.Pod
	gone bool
}

// startLedger watches a pool until the end of the test.
func startLedger(t *testing.T, kube kubernetes.Interface, namespace, pool string) *ledger {
	t.Helper()
	l := &ledger{pods: map[types.UID]entry{}}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = poolLabel + "=" + pool }))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { l.record(o, false) },
		UpdateFunc: func(_, o any) { l.record(o, false) },
		DeleteFunc: func(o any) { l.record(o, true) },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.Start(stop)
	factory.WaitForCacheSync(t.Context().Done())
	return l
}

func (l *ledger) record(o any, gone bool) {
	if tomb, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[p.UID] = entry{p, gone}
}

// find lists the entries that fit.
func (l *ledger) find(fits func(entry) bool) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []entry
	for _, e := range l.pods {
		if fits(e) {
			out = append(out, e)
		}
	}
	return out
}

// entry is what is known of one pod.
func (l *ledger) entry(uid types.UID) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.pods[uid]
	return e, ok
}

// claimed lists every pod that the tenant ever had; "" stands for any tenant.
func (l *ledger) claimed(tenant string) []entry {
	return l.find(func(e entry) bool {
		has := e.pod.Labels[tenantLabel]
		return has != "" && (tenant == "" || has == tenant)
	})
}

// held lists the pods that the tenant has now, those on their way out apart.
func (l *ledger) held(tenant string) []entry {
	return l.find(func(e entry) bool {
		return !e.gone && e.pod.DeletionTimestamp == nil && e.pod.Labels[tenantLabel] == tenant
	})
}

// free lists the pods that are ready to be claimed.
func (l *ledger) free() []entry {
	return l.find(func(e entry) bool {
		return !e.gone && e.pod.DeletionTimestamp == nil && e.pod.Labels[tenantLabel] == "" && isReady(e.pod)
	})
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// String is for failures: one line for each pod.
func (l *ledger) String() string {
	out := ""
	for _, e := range l.find(func(entry) bool { return true }) {
		out += fmt.Sprintf("\n  %s %s tenant %q, phase %s, ready %t, deleting %t, gone %t",
			e.pod.Name, e.pod.UID, e.pod.Labels[tenantLabel], e.pod.Status.Phase, isReady(e.pod), e.pod.DeletionTimestamp != nil, e.gone)
	}
	return out
}

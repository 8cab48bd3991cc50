package pool

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/proto/fn"
	"skipper/xds"
)

// TimeLayout is how times are written into annotations: RFC 3339, UTC, with
// milliseconds, so that claims within a second keep their order.
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// FormatTime writes t for an annotation.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }

// FromPod reads a Pod. It changes nothing and never fails: whatever is wrong
// with labels, annotations, ports or address leaves the field at its zero value
// and a sentence in Problem. functions parses the function annotation.
func FromPod(p *corev1.Pod, functions *Parser) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Deployment:     p.Labels[LabelDeployment],
		Tenant:         p.Labels[LabelTenant],
		Zone:           p.Labels[corev1.LabelTopologyZone],
		Ready:          conditionTrue(p, corev1.PodReady),
		Phase:          p.Status.Phase,
		Evicted:        p.Status.Reason == "Evicted" || conditionTrue(p, corev1.DisruptionTarget),
		Deleting:       p.DeletionTimestamp != nil,
		HostNetwork:    p.Spec.HostNetwork,
		CreatedAt:      p.CreationTimestamp.UTC(),
		HasAnnotations: p.Annotations != nil,
	}
	r := reader{pod: p, out: &out, functions: functions}
	r.version()
	r.owner()
	r.address()
	r.port()
	r.protocol()
	r.assignment()
	return out
}

// reader fills one Pod; the first problem is the one that is kept.
type reader struct {
	pod       *corev1.Pod
	out       *Pod
	functions *Parser
}

func (r reader) problem(format string, args ...any) {
	if r.out.Problem == "" {
		r.out.Problem = fmt.Sprintf(format, args...)
	}
}

func (r reader) version() {
	v, err := strconv.ParseUint(r.pod.ResourceVersion, 10, 64)
	if err != nil {
		return // only test doubles have none; 0 means unknown
	}
	r.out.Version = v
}

func (r reader) owner() {
	for i, o := range r.pod.OwnerReferences {
		if o.Controller != nil && *o.Controller && o.Kind == "ReplicaSet" {
			r.out.ReplicaSet, r.out.OwnedByReplicaSet, r.out.ControllerRef = o.Name, true, i
			return
		}
	}
	r.out.ReplicaSet = r.pod.Annotations[AnnotationReplicaSet]
}

func (r reader) address() {
	if r.pod.Status.PodIP == "" {
		return // not yet: nothing is wrong
	}
	ip, err := netip.ParseAddr(r.pod.Status.PodIP)
	if err != nil || ip.Zone() != "" {
		r.problem("pod IP %s is no address", quote(r.pod.Status.PodIP))
		return
	}
	r.out.IP = ip.Unmap().String()
}

func (r reader) protocol() {
	switch text, ok := r.pod.Annotations[AnnotationProtocol]; {
	case !ok || text == string(xds.HTTP1):
		r.out.Protocol = xds.HTTP1
	case text == string(xds.H2C):
		r.out.Protocol = xds.H2C
	default:
		r.problem("annotation %s is %s: set it to http1 or h2c in the pod template", AnnotationProtocol, quote(text))
	}
}

// assignment reads what the claim and its followers wrote.
func (r reader) assignment() {
	text, hasFunction := r.pod.Annotations[AnnotationFunction]
	_, hasAssignedAt := r.pod.Annotations[AnnotationAssignedAt]
	r.out.Marked = r.out.Tenant != "" || hasFunction || hasAssignedAt
	if _, hasTenant := r.pod.Labels[LabelTenant]; hasTenant {
		r.out.Marked = true
	}
	if !r.out.Marked {
		r.spoiled()
		return
	}
	r.function(text)
	r.out.AssignedAt = r.time(AnnotationAssignedAt)
	if r.out.AssignedAt.IsZero() {
		r.problem("annotation %s is missing: delete the pod", AnnotationAssignedAt)
		r.out.AssignedAt = r.out.CreatedAt
	}
	r.out.ReadyAt = r.time(AnnotationReadyAt)
	r.forgotten()
	_, r.out.Draining = r.pod.Annotations[AnnotationDrainingAt]
	r.out.DrainingAt = r.time(AnnotationDrainingAt)
}

// forgotten takes back ready-at where the container restarted since. Pods that
// were made ready without a count keep it.
func (r reader) forgotten() {
	text, ok := r.pod.Annotations[AnnotationReadyRestarts]
	if !ok || r.out.ReadyAt.IsZero() {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		r.problem("annotation %s is %s, want a number: remove it", AnnotationReadyRestarts, quote(text))
		return
	}
	if int32(n) != r.out.Restarts {
		r.out.ReadyAt, r.out.Forgotten = time.Time{}, true
	}
}

// spoiled looks for what only the followers of a claim may write. A pod that is
// made with it, by its template, would count as ready as soon as it is claimed.
func (r reader) spoiled() {
	for _, key := range []string{AnnotationReadyAt, AnnotationDrainingAt} {
		if _, ok := r.pod.Annotations[key]; ok {
			r.out.Spoiled = true
			r.problem("annotation %s on a pod that nobody has claimed: remove it from the pod template", key)
		}
	}
}

// function accepts the annotation only where it agrees with the pod's labels,
// and these with the tenant's annotation: a pod is never taken for another
// tenant's because somebody edited one or two of the three.
func (r reader) function(text string) {
	f, err := r.functions.Parse(text)
	if err != nil {
		r.problem("annotation %s cannot be read (%s): delete the pod", AnnotationFunction, strings.ReplaceAll(err.Error(), "\n", "; ")) // it lists all that is wrong
		return
	}
	k := fn.KeyOf(f)
	if k.Namespace != r.out.Namespace || k.Deployment != r.out.Deployment || k.Tenant != r.out.Tenant {
		r.problem("annotation %s names %s, the pod's namespace and labels say otherwise: delete the pod", AnnotationFunction, quote(k.String()))
		return
	}
	if tenant := r.pod.Annotations[AnnotationTenant]; tenant != k.Tenant {
		r.problem("annotation %s is %s, the pod's label says %s: delete the pod", AnnotationTenant, quote(tenant), quote(k.Tenant))
		return
	}
	r.out.Function, r.out.Key = f, k
}

// time is zero where the annotation is missing or no RFC 3339 time.
func (r reader) time(annotation string) time.Time {
	text, ok := r.pod.Annotations[annotation]
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		r.problem("annotation %s is %s, want an RFC 3339 time: correct it or delete the pod", annotation, quote(text))
		return time.Time{}
	}
	return t.UTC()
}

func conditionTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// quote keeps hostile values short and printable.
func quote(s string) string {
	const longest = 80
	if len(s) > longest {
		s = s[:longest] + "..."
	}
	return strconv.QuoteToASCII(s)
}

func wallTime(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

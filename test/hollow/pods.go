package hollow

import (
	"net/http"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the contract.
const (
	labelDeployment = "skipper/deployment"
	labelTenant     = "skipper/tenant"
)

// Pool is a Deployment of n pods on the node that answer at port.
func (n *Node) Pool(name string, replicas, port int32) *appsv1.Deployment {
	labels := map[string]string{labelDeployment: name}
	none := int64(0)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: labelTenant, Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeName: n.name, TerminationGracePeriodSeconds: &none,
					Containers: []corev1.Container{{Name: "hollow", Image: "hollow", Ports: []corev1.ContainerPort{{ContainerPort: port}}}},
				},
			},
		},
	}
}

// Controller is the pod of a controller that runs outside of it, at ip.
func (n *Node) Controller(ip string) *corev1.Pod {
	none := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.namespace, GenerateName: "controller-",
			Labels: map[string]string{controllerLabel: controllerName}, Annotations: map[string]string{AnnotationIP: ip},
		},
		Spec: corev1.PodSpec{
			NodeName: n.name, TerminationGracePeriodSeconds: &none,
			Containers: []corev1.Container{{Name: "hollow", Image: "hollow"}},
		},
	}
}

// Assignment is one that a controller has posted to a pod.
type Assignment struct {
	// IP of the pod.
	IP string
	// Function is the JSON that it was given.
	Function string
}

// Pods answers assignments for all pods of a node, and is what their containers
// would be otherwise. Safe for concurrent use.
type Pods struct {
	// Serve answers requests that are no assignment; nil: 404. It must be set
	// before the first one.
	Serve http.Handler

	mu sync.Mutex
	// The fields below are guarded by mu.
	accepted  []Assignment
	functions map[string]string // JSON by IP
	hold      func(Assignment) <-chan struct{}
}

// NewPods answers at once.
func NewPods() *Pods { return &Pods{functions: map[string]string{}} }

// Hold makes assignments wait for the channel that f returns; nil does not.
func (p *Pods) Hold(f func(Assignment) <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = f
}

// Accepted lists all assignments that were accepted, in order; one that was
// posted again counts again.
func (p *Pods) Accepted() []Assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Assignment(nil), p.accepted...)
}

// ServeHTTP is a pod: which one, the address that the request came to says.
func (p *Pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/__skipper/assign" {
		if p.Serve == nil {
			http.NotFound(w, r)
			return
		}
		p.Serve.ServeHTTP(w, r)
		return
	}
	if status := p.assign(r); status != http.StatusOK {
		http.Error(w, "refused", status)
	}
}

// assign takes an assignment; the same one again is accepted again.
func (p *Pods) assign(r *http.Request) int {
	a := Assignment{IP: localIP(r), Function: r.Header.Get("X-Skipper-Function")}
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		if wait := hold(a); wait != nil {
			select {
			case <-wait:
			case <-r.Context().Done():
				return http.StatusServiceUnavailable
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if had, ok := p.functions[a.IP]; ok && had != a.Function {
		return http.StatusConflict
	}
	p.functions[a.IP] = a.Function
	p.accepted = append(p.accepted, a)
	return http.StatusOK
}

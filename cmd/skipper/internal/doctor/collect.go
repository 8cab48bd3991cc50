package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/connect"
	"skipper/cmd/skipper/internal/pools"
	"skipper/controller/lease"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// each bounds one question, so that one that hangs leaves time for the others.
const each = 10 * time.Second

// collector fills Facts. One goroutine uses it.
type collector struct {
	*connect.Cluster
	gatewaySelector string
	now             func() time.Time
	out             Facts
}

// Collect asks all that Diagnose looks at. The gateways' pods are found by
// their labels.
func Collect(ctx context.Context, c *connect.Cluster, gatewaySelector string, now func() time.Time) Facts {
	x := &collector{Cluster: c, gatewaySelector: gatewaySelector, now: now, out: Facts{Now: now(), System: c.System}}
	x.replicas(ctx)
	for _, ask := range []func(context.Context){
		x.namespaces, x.clock, x.access, x.metrics, x.pools, x.leases, x.gateways, x.certificates,
	} {
		bounded, cancel := context.WithTimeout(ctx, each)
		ask(bounded)
		cancel()
	}
	return x.out
}

func (x *collector) gap(check, what string, err error) {
	x.out.Gaps = append(x.out.Gaps, Gap{check, what, err.Error()})
}

func (x *collector) namespaces(ctx context.Context) {
	found, err := x.FunctionNamespaces(ctx)
	if err != nil {
		x.gap("pool", "function namespaces", err)
	}
	x.out.Namespaces = found
}

func (x *collector) clock(ctx context.Context) {
	asked := x.now()
	at, err := x.Clock(ctx)
	if err != nil {
		x.gap("clock", "API server", err)
		return
	}
	x.out.Server = Reading{At: at, Asked: asked, Answered: x.now(), Step: time.Second}
}

// replicas asks each controller. Only the first is asked for functions, which
// all know alike.
func (x *collector) replicas(ctx context.Context) {
	if x.Options.Controller != "" {
		x.given(ctx)
		return
	}
	pods, err := x.Replicas(ctx)
	if err != nil {
		x.gap("replica", "controllers", err)
		return
	}
	whole := true
	for _, p := range pods {
		r := x.replica(ctx, p, whole)
		whole = whole && r.Error != ""
		x.out.Replicas = append(x.out.Replicas, r)
	}
}

func (x *collector) replica(ctx context.Context, p connect.Replica, whole bool) Replica {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	r := Replica{Pod: p.Name, IP: p.IP, Ready: p.Ready}
	client, err := x.Replica(ctx, p)
	if err == nil {
		err = x.ask(ctx, &r, client, whole)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// given asks the one controller that the operator named; others are known from it.
func (x *collector) given(ctx context.Context) {
	r := Replica{Pod: "at " + x.Options.Controller, Ready: true}
	client, err := x.Controller(ctx)
	if err == nil {
		err = x.ask(ctx, &r, client, true)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.IP = r.State.GetPodIp()
	x.out.Replicas = append(x.out.Replicas, r)
	for _, s := range r.State.GetReplicas() {
		if s.GetIp() != r.IP {
			x.out.Replicas = append(x.out.Replicas, Replica{Pod: "at " + s.GetIp(), IP: s.GetIp()})
		}
	}
}

func (x *collector) ask(ctx context.Context, r *Replica, client skipperpb.ControllerServiceClient, whole bool) error {
	r.Asked = x.now()
	answer, err := client.GetClusterState(ctx, &skipperpb.GetClusterStateRequest{WithoutSupervisors: !whole})
	r.Answered = x.now()
	r.State = answer.GetClusterState()
	return err
}

func (x *collector) metrics(context.Context) {
	_, err := x.Kube.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
	if err != nil && !apierrors.IsNotFound(err) {
		x.gap("metrics", "metrics.k8s.io", err)
		return
	}
	x.out.Metrics = Metrics{Known: true, Served: err == nil}
}

// pools looks in all namespaces, for pools that nobody manages, and where that
// is not allowed in the managed ones.
func (x *collector) pools(ctx context.Context) {
	found, err := x.poolsIn(ctx, metav1.NamespaceAll)
	if err == nil {
		x.out.Pools = found
		return
	}
	for _, ns := range x.out.Namespaces {
		found, err := x.poolsIn(ctx, ns)
		if err != nil {
			x.gap("pool", "namespace "+ns, err)
		}
		x.out.Pools = append(x.out.Pools, found...)
	}
}

func (x *collector) poolsIn(ctx context.Context, namespace string) ([]pools.Pool, error) {
	deployments, err := x.Kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := x.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: pool.LabelDeployment})
	if err != nil {
		return nil, err
	}
	return pools.Of(append([]appsv1.Deployment{}, deployments.Items...), pods.Items), nil
}

func (x *collector) leases(ctx context.Context) {
	list, err := x.Kube.CoordinationV1().Leases(x.System).List(ctx, metav1.ListOptions{LabelSelector: lease.Label + "=" + lease.LabelValue})
	if err != nil {
		x.gap("lease", "leases of extprocs", err)
		return
	}
	for i := range list.Items {
		l := &list.Items[i]
		if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			continue // says nothing that could be judged
		}
		x.out.Leases = append(x.out.Leases, Lease{
			Name: l.Name, Node: *l.Spec.HolderIdentity, Envoy: l.Annotations[envoyNode], Renewed: l.Spec.RenewTime.Time,
			Lasts: time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second,
		})
	}
}

// envoyNode is the annotation of a Lease that names the extproc's Envoy.
const envoyNode = "skipper/envoy-node"

func (x *collector) gateways(ctx context.Context) {
	pods, err := x.Kube.CoreV1().Pods(x.System).List(ctx, metav1.ListOptions{LabelSelector: x.gatewaySelector})
	if err != nil {
		x.gap("lease", "gateways", err)
		return
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase != corev1.PodFailed && pods.Items[i].Status.Phase != corev1.PodSucceeded {
			x.out.Gateways = append(x.out.Gateways, pods.Items[i].Name)
		}
	}
}

// certificates reads the roles' Secrets; one that is not there is no finding,
// for it may be mounted from elsewhere.
func (x *collector) certificates(ctx context.Context) {
	for _, role := range []string{"controller", "envoy", "extproc", "operator"} {
		name := "skipper-tls-" + role
		s, err := x.Kube.CoreV1().Secrets(x.System).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			x.gap("certificate", "secret "+x.System+"/"+name, err)
		default:
			if ends, ok := endOf(s.Data["tls.crt"]); ok {
				x.out.Certificates = append(x.out.Certificates, Certificate{name, ends})
			}
		}
	}
}

func endOf(text []byte) (time.Time, bool) {
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}, false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return c.NotAfter, true
}

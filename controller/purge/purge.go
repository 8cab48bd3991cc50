// Package purge removes what stays when Skipper is uninstalled: pods that are
// assigned to tenants, which no ReplicaSet owns any more, the extprocs' Leases,
// keys and certificates.
package purge

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"skipper/controller/lease"
	"skipper/controller/pool"
	"skipper/controller/provision"
)

// pageSize of lists.
const pageSize = 500

// Find lists what may be Skipper's. Namespaces that do not exist are empty.
func Find(ctx context.Context, kube kubernetes.Interface, l provision.Layout) ([]Object, error) {
	f := finder{kube, nil}
	err := errors.Join(f.system(ctx, l.System), f.controllersOf(ctx, l))
	for _, n := range l.Functions {
		err = errors.Join(err, f.pods(ctx, n), f.configMap(ctx, n, provision.PublicKeyName))
	}
	for _, n := range l.Gateways {
		for _, role := range []string{"envoy", "extproc"} {
			if n != l.System {
				err = errors.Join(err, f.secret(ctx, n, provision.CertificatePrefix+role))
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return f.found, nil
}

type finder struct {
	kube  kubernetes.Interface
	found []Object
}

func (f *finder) system(ctx context.Context, namespace string) error {
	err := errors.Join(f.deployment(ctx, namespace), f.leases(ctx, namespace), f.secret(ctx, namespace, provision.PrivateKeyName))
	for _, name := range []string{"authority", "controller", "envoy", "extproc", "operator"} {
		err = errors.Join(err, f.secret(ctx, namespace, provision.CertificatePrefix+name))
	}
	return err
}

// controllersOf finds the controllers that may claim pods in the function
// namespaces, wherever they run: those of another system namespace than the one
// that was named are at work on the same pods.
func (f *finder) controllersOf(ctx context.Context, l provision.Layout) error {
	systems := map[string]bool{l.System: true}
	for _, n := range l.Functions {
		list, err := f.kube.RbacV1().RoleBindings(n).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list role bindings in %s, which tell whose controllers use it: %w", n, err)
		}
		for i := range list.Items {
			for _, system := range controllerNamespaces(&list.Items[i]) {
				if !systems[system] {
					systems[system] = true
					err = errors.Join(err, f.deployment(ctx, system))
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// controllerNamespaces are those of the controllers that the binding is for.
func controllerNamespaces(b *rbacv1.RoleBinding) []string {
	var out []string
	for _, s := range b.Subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Name == provision.Service {
			out = append(out, s.Namespace)
		}
	}
	return out
}

func (f *finder) deployment(ctx context.Context, namespace string) error {
	d, err := f.kube.AppsV1().Deployments(namespace).Get(ctx, provision.Service, metav1.GetOptions{})
	if err != nil {
		return unlessMissing("read deployment of the controllers", err)
	}
	o := objectOf(deployment, &d.ObjectMeta)
	o.Running = 1 // what a Deployment without a number runs
	if d.Spec.Replicas != nil {
		o.Running = *d.Spec.Replicas
	}
	f.found = append(f.found, o)
	return nil
}

func (f *finder) leases(ctx context.Context, namespace string) error {
	opts := metav1.ListOptions{LabelSelector: lease.Label + "=" + lease.LabelValue, Limit: pageSize}
	for {
		list, err := f.kube.CoordinationV1().Leases(namespace).List(ctx, opts)
		if err != nil {
			return fmt.Errorf("list leases in %s: %w", namespace, err)
		}
		for i := range list.Items {
			f.found = append(f.found, objectOf(leaseKind, &list.Items[i].ObjectMeta))
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return nil
		}
	}
}

func (f *finder) pods(ctx context.Context, namespace string) error {
	opts := metav1.ListOptions{LabelSelector: pool.LabelDeployment + "," + pool.LabelTenant, Limit: pageSize}
	for {
		list, err := f.kube.CoreV1().Pods(namespace).List(ctx, opts)
		if err != nil {
			return fmt.Errorf("list pods in %s: %w", namespace, err)
		}
		for i := range list.Items {
			f.found = append(f.found, objectOf(pod, &list.Items[i].ObjectMeta))
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return nil
		}
	}
}

func (f *finder) secret(ctx context.Context, namespace, name string) error {
	s, err := f.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unlessMissing("read secret "+name, err)
	}
	f.found = append(f.found, objectOf(secret, &s.ObjectMeta))
	return nil
}

func (f *finder) configMap(ctx context.Context, namespace, name string) error {
	m, err := f.kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unlessMissing("read configmap "+name, err)
	}
	f.found = append(f.found, objectOf(configMap, &m.ObjectMeta))
	return nil
}

func unlessMissing(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Carry deletes what the items say, and only the very objects that were found:
// one that another has replaced meanwhile is an error. One that is gone already
// is none. It goes on after an error, and returns all of them.
func Carry(ctx context.Context, kube kubernetes.Interface, items []Item) error {
	var errs []error
	for _, i := range items {
		if !i.Delete {
			continue
		}
		if err := remove(ctx, kube, i.Object); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", i.Object, err))
		}
	}
	return errors.Join(errs...)
}

func remove(ctx context.Context, kube kubernetes.Interface, o Object) error {
	opts := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}
	switch o.Kind {
	case pod:
		return kube.CoreV1().Pods(o.Namespace).Delete(ctx, o.Name, opts)
	case leaseKind:
		return kube.CoordinationV1().Leases(o.Namespace).Delete(ctx, o.Name, opts)
	case configMap:
		return kube.CoreV1().ConfigMaps(o.Namespace).Delete(ctx, o.Name, opts)
	case secret:
		return kube.CoreV1().Secrets(o.Namespace).Delete(ctx, o.Name, opts)
	}
	return fmt.Errorf("%s is of a kind that is never deleted", o)
}

//go:build e2e

package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// stage is the deployed Skipper once more, in a namespace of its own: its own controllers with settings of their own,
// its own gateway and pools. What a test does to it concerns nobody else.
type stage struct {
	*world
	gate *gate
	// controllers is how many there are.
	controllers int32
	// images are those of containers, by name, that are not the deployed ones.
	images map[string]string
}

const (
	// gateNote is the ConfigMap by which controllers find the gate.
	gateNote  = "skipper-e2e-gate"
	gateMount = "/etc/skipper-e2e"
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// part is one object of the deployed Skipper that a stage copies.
type part struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

// parts are what a stage copies, Deployments last, which need all others.
func (s *stage) parts(t *testing.T) []part {
	t.Helper()
	rbac := func(resource, namespace, name string) part {
		return part{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}, namespace, name}
	}
	all := []part{
		core("serviceaccounts", systemNamespace, controllerName), core("serviceaccounts", systemNamespace, gatewayName),
		rbac("roles", systemNamespace, controllerName), rbac("rolebindings", systemNamespace, controllerName),
		rbac("roles", functionNamespace, "skipper-functions"), rbac("rolebindings", functionNamespace, "skipper-functions"),
		core("services", systemNamespace, controllerName), core("secrets", systemNamespace, "skipper-tls-operator"),
	}
	deployments := [][2]string{{functionNamespace, modelPool}, {systemNamespace, controllerName}, {systemNamespace, gatewayName}}
	for _, d := range deployments {
		all = append(all, s.mounted(t, d[0], d[1])...)
	}
	for _, d := range deployments {
		all = append(all, part{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, d[0], d[1]})
	}
	return all
}

func core(resource, namespace, name string) part {
	return part{schema.GroupVersionResource{Version: "v1", Resource: resource}, namespace, name}
}

// mounted are the ConfigMaps and Secrets that a Deployment's pods see.
func (s *stage) mounted(t *testing.T, namespace, name string) []part {
	t.Helper()
	d, err := s.kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []part
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			out = append(out, core("configmaps", namespace, v.ConfigMap.Name))
		}
		if v.Secret != nil {
			out = append(out, core("secrets", namespace, v.Secret.SecretName))
		}
	}
	return out
}

// newStage starts a stage and removes it at the end of the test.
func newStage(t *testing.T, controllers int32, settings map[string]string) *stage {
	t.Helper()
	return newStageOf(t, nil, controllers, settings)
}

// newStageOf is newStage with other images of some containers.
func newStageOf(t *testing.T, images map[string]string, controllers int32, settings map[string]string) *stage {
	t.Helper()
	w := newWorld(t)
	node := w.systemPod(t, gatewayName).Status.HostIP
	skipUnlessNode(t, node)
	s := &stage{world: w, controllers: controllers, images: images}
	namespace := s.makeNamespace(t)
	s.gate = newGate(t, w.config, node)
	s.writeGate(t, namespace)
	s.copyParts(t, namespace, settings)
	s.system, s.functions = namespace, namespace
	t.Cleanup(func() {
		if t.Failed() {
			s.dumpLogs(t.Output())
		}
	})
	for _, name := range []string{controllerName, gatewayName} {
		if err := s.waitRollout(t.Context(), namespace, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.waitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.gateway = "http://" + net.JoinHostPort(s.systemPod(t, gatewayName).Status.PodIP, gatewayPort)
	return s
}

func (s *stage) makeNamespace(t *testing.T) string {
	t.Helper()
	namespaces := s.kube.CoreV1().Namespaces()
	ns, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: suiteLabel + "-stage-", Labels: map[string]string{suiteLabel: "true"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	afterwards(t, "remove namespace "+ns.Name, func(ctx context.Context) error {
		return ignore(namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{}), apierrors.IsNotFound)
	})
	return ns.Name
}

// writeGate tells controllers where the API server is: at the gate, which takes their own token.
func (s *stage) writeGate(t *testing.T, namespace string) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["gate"] = &clientcmdapi.Cluster{Server: s.gate.server.URL, CertificateAuthorityData: s.gate.authority(), TLSServerName: gateName}
	c.AuthInfos["own"] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	c.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate", AuthInfo: "own"}
	c.CurrentContext = "gate"
	text, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: gateNote}, Data: map[string]string{"kubeconfig": string(text)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// copyParts copies Skipper into the stage's namespace, whose name stands wherever the deployed one's stood.
func (s *stage) copyParts(t *testing.T, namespace string, settings map[string]string) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.parts(t) {
		model, err := client.Resource(p.gvr).Namespace(p.namespace).Get(t.Context(), p.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made, err := restaged(model, namespace)
		if err == nil && p.gvr.Resource == "deployments" {
			err = s.adapt(made, settings)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resource(p.gvr).Namespace(namespace).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// restaged is an object as if it had been made in another namespace.
func restaged(model *unstructured.Unstructured, namespace string) (*unstructured.Unstructured, error) {
	made := model.DeepCopy()
	made.Object["metadata"] = map[string]any{"name": model.GetName(), "namespace": namespace}
	made.SetLabels(model.GetLabels())
	delete(made.Object, "status")
	text, err := made.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", model.GetName(), err)
	}
	text = bytes.ReplaceAll(text, []byte(systemNamespace), []byte(namespace))
	if err := made.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("decode %s: %w", model.GetName(), err)
	}
	return made, nil
}

// adapt gives the Deployments of a stage their size, and its controllers the gate and their settings.
func (s *stage) adapt(u *unstructured.Unstructured, settings map[string]string) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode deployment: %w", err)
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("decode deployment: %w", err)
	}
	size := int32(1)
	switch d.Name {
	case modelPool:
		size = 0 // the tests copy it
	case gatewayName:
		// An ending namespace is looked at again after half of the longest grace period.
		grace := int64(stopSeconds)
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	case controllerName:
		size = s.controllers
		s.adaptController(&d.Spec.Template.Spec, u.GetNamespace(), settings)
	}
	d.Spec.Replicas = &size
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		c.Image = cmp.Or(s.images[c.Name], c.Image)
	}
	if text, err = json.Marshal(d); err != nil {
		return fmt.Errorf("encode deployment: %w", err)
	}
	return u.UnmarshalJSON(text)
}

func (s *stage) adaptController(pod *corev1.PodSpec, namespace string, settings map[string]string) {
	c := &pod.Containers[0]
	all := map[string]string{"SKIPPER_FUNCTION_NAMESPACES": namespace, "SKIPPER_KUBECONFIG": gateMount + "/kubeconfig"}
	for name, value := range settings {
		all[name] = value
	}
	var env []corev1.EnvVar
	for _, e := range c.Env {
		if _, changed := all[e.Name]; !changed {
			env = append(env, e)
		}
	}
	for name, value := range all {
		env = append(env, corev1.EnvVar{Name: name, Value: value})
	}
	c.Env = env
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "gate", MountPath: gateMount, ReadOnly: true})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "gate", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: gateNote}},
	}})
}

// controllerAt is the controller's pod with that address.
func (s *stage) controllerAt(t *testing.T, ip string) *corev1.Pod {
	t.Helper()
	for _, p := range s.systemPods(t, controllerName) {
		if p.Status.PodIP == ip {
			return &p
		}
	}
	t.Fatalf("no controller has the address %s", ip)
	return nil
}

// removeStages removes the stages of an earlier run, and waits for the end of their pods, which take the node's time.
// The namespaces themselves end when the API server gets round to it.
func (w *world) removeStages(ctx context.Context) error {
	namespaces, now := w.kube.CoreV1().Namespaces(), int64(0)
	list, err := namespaces.List(ctx, metav1.ListOptions{LabelSelector: suiteLabel})
	if err != nil {
		return err
	}
	for _, ns := range list.Items {
		err := ignore(namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{}), func(err error) bool {
			return apierrors.IsNotFound(err) || apierrors.IsConflict(err) // ending already
		})
		if err != nil {
			return err
		}
		pods := w.kube.CoreV1().Pods(ns.Name)
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
			return err
		}
		if err := poll(ctx, func() bool {
			left, err := pods.List(ctx, metav1.ListOptions{})
			return err == nil && len(left.Items) == 0
		}); err != nil {
			return err
		}
	}
	return nil
}

// Package provision makes the Secrets that Skipper lives on where they are
// missing: the key that signs assignment tokens, an authority, and a certificate
// for each role. It renews certificates that end soon, and never replaces the
// key or the authority, nor takes a public key from functions while the key is
// being replaced.
package provision

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Layout says where Skipper is. All namespaces must exist.
type Layout struct {
	// System is the namespace of the controllers, and of the Secrets.
	System string
	// Functions get the public half of the signing key, in a ConfigMap.
	Functions []string
	// Gateways, other than System, get copies of the certificates of Envoy and extproc.
	Gateways []string
}

// Names of objects, and of what is in them.
const (
	PrivateKeyName = "skipper-paseto-key"
	PrivateKeyFile = "private.pem"
	PublicKeyName  = "skipper-paseto-public-key"
	PublicKeyFile  = "public.pem"
	AuthorityName  = "skipper-tls-authority"
	// CertificatePrefix stands before a role in the name of its Secret.
	CertificatePrefix = "skipper-tls-"
	// Service of the controllers, whose names stand in their certificate.
	Service = "skipper-controller"

	authorityFile = "ca.crt"
)

// rounds bounds how often it begins anew because somebody else wrote meanwhile.
const rounds = 5

// Ref names a Secret or a ConfigMap.
type Ref struct{ Kind, Namespace, Name string }

func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Change is one object to write, and why. Replaces says that there is one already,
// of that Version.
type Change struct {
	Ref
	Replaces bool
	Version  string
	Type     corev1.SecretType
	Data     map[string][]byte
	Reason   string
}

// Run looks at the cluster and writes what is due; said is called for each
// change after it was written. Several may run at once.
func Run(ctx context.Context, kube kubernetes.Interface, l Layout, now time.Time, said func(Change)) error {
	var err error
	for range rounds {
		if err = once(ctx, kube, l, now, said); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return err
}

func once(ctx context.Context, kube kubernetes.Interface, l Layout, now time.Time, said func(Change)) error {
	found, err := read(ctx, kube, l)
	if err != nil {
		return err
	}
	changes, err := Plan(l, found, now)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := write(ctx, kube, c); err != nil {
			return fmt.Errorf("write %s: %w", c.Ref, err)
		}
		said(c)
	}
	return nil
}

// read gets every object that Plan asks for, by name: the account that runs this
// may list none.
func read(ctx context.Context, kube kubernetes.Interface, l Layout) (State, error) {
	found := State{}
	for _, r := range l.refs() {
		o, err := get(ctx, kube, r)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r, err)
		}
		found[r] = o
	}
	return found, nil
}

func get(ctx context.Context, kube kubernetes.Interface, r Ref) (Object, error) {
	if r.Kind == "Secret" {
		s, err := kube.CoreV1().Secrets(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return Object{}, err
		}
		return Object{Version: s.ResourceVersion, Data: s.Data}, nil
	}
	m, err := kube.CoreV1().ConfigMaps(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return Object{}, err
	}
	o := Object{Version: m.ResourceVersion, Data: map[string][]byte{}}
	for name, text := range m.Data {
		o.Data[name] = []byte(text)
	}
	return o, nil
}

// write creates an object, or puts other data into the one that there is, whose
// labels, annotations and owners are others' affair. It fails with a conflict
// where somebody else wrote meanwhile.
func write(ctx context.Context, kube kubernetes.Interface, c Change) error {
	if c.Kind == "Secret" {
		return writeSecret(ctx, kube.CoreV1().Secrets(c.Namespace), c)
	}
	return writeConfigMap(ctx, kube.CoreV1().ConfigMaps(c.Namespace), c)
}

func writeSecret(ctx context.Context, secrets corev1client.SecretInterface, c Change) error {
	if !c.Replaces {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metaOf(c), Type: c.Type, Data: c.Data}, metav1.CreateOptions{})
		return err
	}
	s, err := secrets.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.ResourceVersion, s.Data = c.Version, c.Data
	_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

func writeConfigMap(ctx context.Context, maps corev1client.ConfigMapInterface, c Change) error {
	if !c.Replaces {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metaOf(c), Data: texts(c.Data)}, metav1.CreateOptions{})
		return err
	}
	m, err := maps.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	m.ResourceVersion, m.Data = c.Version, texts(c.Data)
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	return err
}

func metaOf(c Change) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "skipper"}}
}

func texts(data map[string][]byte) map[string]string {
	out := map[string]string{}
	for name, b := range data {
		out[name] = string(b)
	}
	return out
}

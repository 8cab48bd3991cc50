package provision

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	start  = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	layout = Layout{System: "system", Functions: []string{"f1", "f2"}, Gateways: []string{"shop", "system"}}
)

// provisioned runs on a cluster and returns what was written, in order.
func provisioned(t *testing.T, kube *fake.Clientset, now time.Time) []string {
	t.Helper()
	var out []string
	err := Run(t.Context(), kube, layout, now, func(c Change) { out = append(out, c.String()) })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func data(t *testing.T, kube *fake.Clientset, r Ref) map[string][]byte {
	t.Helper()
	o, err := get(t.Context(), kube, r)
	if err != nil {
		t.Fatal(err)
	}
	return o.Data
}

var everything = []string{
	"Secret system/skipper-paseto-key", "ConfigMap f1/skipper-paseto-public-key", "ConfigMap f2/skipper-paseto-public-key",
	"Secret system/skipper-tls-authority", "Secret system/skipper-tls-controller", "Secret system/skipper-tls-envoy",
	"Secret system/skipper-tls-extproc", "Secret system/skipper-tls-operator", "Secret shop/skipper-tls-envoy", "Secret shop/skipper-tls-extproc",
}

func TestAllIsMadeOnceAndThenKept(t *testing.T) {
	kube := fake.NewClientset()
	if d := cmp.Diff(everything, provisioned(t, kube, start)); d != "" {
		t.Errorf("first (-want +got):\n%s", d)
	}
	if got := provisioned(t, kube, start.Add(24*time.Hour)); got != nil {
		t.Errorf("second: %v, want nothing", got)
	}
}

func TestHalvesOfTheKeyBelongTogether(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	private, _ := pem.Decode(data(t, kube, secret("system", PrivateKeyName))[PrivateKeyFile])
	public, _ := pem.Decode(data(t, kube, Ref{"ConfigMap", "f2", PublicKeyName})[PublicKeyFile])
	signer, err := x509.ParsePKCS8PrivateKey(private.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := x509.ParsePKIXPublicKey(public.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("message")
	if !ed25519.Verify(verifier.(ed25519.PublicKey), message, ed25519.Sign(signer.(ed25519.PrivateKey), message)) {
		t.Error("the halves do not match")
	}
}

// A year later all certificates are new, of the same authority; the signing key is the old one.
func TestCertificatesAreRenewedAndKeysAreNot(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	key, ca := data(t, kube, secret("system", PrivateKeyName)), data(t, kube, secret("system", AuthorityName))
	later := start.Add(306 * 24 * time.Hour)
	want := []string{
		"Secret system/skipper-tls-controller", "Secret system/skipper-tls-envoy", "Secret system/skipper-tls-extproc",
		"Secret system/skipper-tls-operator", "Secret shop/skipper-tls-envoy", "Secret shop/skipper-tls-extproc",
	}
	if d := cmp.Diff(want, provisioned(t, kube, later)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(key, data(t, kube, secret("system", PrivateKeyName))); d != "" {
		t.Error("the signing key has changed")
	}
	if d := cmp.Diff(ca, data(t, kube, secret("system", AuthorityName))); d != "" {
		t.Error("the authority has changed")
	}
	for _, r := range layout.refs()[2:8] {
		d := data(t, kube, r)
		if Due(d, later) != "" || !bytes.Equal(d[authorityFile], ca[corev1.TLSCertKey]) {
			t.Errorf("%s: due %q, or of another authority", r, Due(d, later))
		}
	}
}

func TestPlanOfWhatIsOdd(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	good, err := read(t.Context(), kube, layout)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(State)
		want   []string
		err    string
	}{
		"nothing is missing": {func(State) {}, nil, ""},
		"one certificate is missing": {
			func(s State) { delete(s, certificate("system", "extproc")) },
			[]string{"Secret system/skipper-tls-extproc", "Secret shop/skipper-tls-extproc"},
			"",
		},
		"a copy was edited": {
			func(s State) { s[certificate("shop", "envoy")] = Object{"7", map[string][]byte{"tls.crt": nil}} },
			[]string{"Secret shop/skipper-tls-envoy"},
			"",
		},
		"a function namespace is new": {
			func(s State) { delete(s, Ref{"ConfigMap", "f2", PublicKeyName}) },
			[]string{"ConfigMap f2/skipper-paseto-public-key"},
			"",
		},
		"certificates of other make, all good": {func(s State) { delete(s, secret("system", AuthorityName)) }, nil, ""},
		"certificates of other make, one missing": {
			func(s State) { delete(s, secret("system", AuthorityName)); delete(s, certificate("system", "extproc")) },
			nil, "renew them with the authority that made the others",
		},
		"the key is none": {
			func(s State) {
				s[secret("system", PrivateKeyName)] = Object{"1", map[string][]byte{PrivateKeyFile: []byte("x")}}
			},
			nil, "delete it to have a new one made",
		},
		"the authority is none": {
			func(s State) {
				s[secret("system", AuthorityName)] = Object{}
				delete(s, certificate("system", "envoy"))
			},
			nil, "use Secret system/skipper-tls-authority",
		},
	} {
		state := maps.Clone(good)
		row.change(state)
		changes, err := Plan(layout, state, start)
		if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: error %v, want %q", name, err, row.err)
		}
		var got []string
		for _, c := range changes {
			got = append(got, c.String())
		}
		if d := cmp.Diff(row.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Who trusts a second authority besides goes on doing so after a renewal.
func TestRenewalKeepsASecondAuthority(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	state, err := read(t.Context(), kube, layout)
	if err != nil {
		t.Fatal(err)
	}
	r := certificate("system", "envoy")
	both := append([]byte("# another\n"), state[r].Data[authorityFile]...)
	state[r].Data[authorityFile] = both
	changes, err := Plan(layout, state, start.Add(320*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	p := plan{changes: changes}
	if got := p.data(r)[authorityFile]; !bytes.Equal(got, both) {
		t.Errorf("ca.crt is now %q", got)
	}
}

// Two that run at once end with one key: the later one begins anew.
func TestSomebodyElseWasFaster(t *testing.T) {
	other := fake.NewClientset()
	provisioned(t, other, start)
	kube, beaten := fake.NewClientset(), false
	kube.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if beaten {
			return false, nil, nil
		}
		beaten = true
		adopt(t, kube, other)
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), PrivateKeyName)
	})
	if got := provisioned(t, kube, start); got != nil || !beaten {
		t.Errorf("wrote %v after another had written all", got)
	}
}

// adopt gives a cluster what another one has.
func adopt(t *testing.T, to, from *fake.Clientset) {
	t.Helper()
	for _, r := range layout.refs() {
		resource := corev1.SchemeGroupVersion.WithResource("secrets")
		if r.Kind != "Secret" {
			resource.Resource = "configmaps"
		}
		o, err := from.Tracker().Get(resource, r.Namespace, r.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherErrorEndsTheRun(t *testing.T) {
	kube := fake.NewClientset()
	kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), PrivateKeyName, errors.New("no right"))
	})
	err := Run(t.Context(), kube, layout, start, func(Change) {})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "read Secret system/skipper-paseto-key") {
		t.Errorf("error %v", err)
	}
	list, err := kube.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("wrote %d ConfigMaps, %v", len(list.Items), err)
	}
}

// While the key is being replaced pods have two. Whenever it runs in between, none
// of them is taken away; what does not hold the key that signs is put right.
func TestKeysOfARotationStay(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	good, err := read(t.Context(), kube, layout)
	if err != nil {
		t.Fatal(err)
	}
	at := Ref{"ConfigMap", "f1", PublicKeyName}
	signs, other := string(good[at].Data[PublicKeyFile]), publicKey(t)
	for name, row := range map[string]struct {
		published string
		stays     bool
	}{
		"the one that signs":            {signs, true},
		"the next one is published":     {signs + other, true},
		"the one before is not retired": {other + signs, true},
		"three of them":                 {other + signs + publicKey(t), true},
		"space between them":            {other + "\n\n" + signs + "\n", true},
		"not the one that signs":        {other, false},
		"none":                          {"", false},
		"text that pods cannot read":    {signs + "x", false},
	} {
		state := maps.Clone(good)
		state[at] = Object{"7", map[string][]byte{PublicKeyFile: []byte(row.published)}}
		changes, err := Plan(layout, state, start)
		if err != nil {
			t.Fatal(err)
		}
		if (len(changes) == 0) != row.stays {
			t.Errorf("%s: %v, want it left alone: %v", name, changes, row.stays)
		}
		if !row.stays && string((&plan{found: state, changes: changes}).data(at)[PublicKeyFile]) != signs {
			t.Errorf("%s: not the key that signs is published", name)
		}
	}
}

// publicKey is one that nobody knows, PKIX in PEM.
func publicKey(t *testing.T) string {
	t.Helper()
	private, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := publicHalf(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(public)
}

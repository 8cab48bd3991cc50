package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/connect"
	"skipper/cmd/skipper/internal/keys"
	"skipper/function/token"
)

// signer is a fixed key, for tokens that are the same each time.
func signer(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func publicPEM(t *testing.T, n byte) string {
	t.Helper()
	text, err := keys.Encode([]ed25519.PublicKey{signer(n).Public().(ed25519.PublicKey)})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func publicKeys(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: publicMap}, Data: map[string]string{publicFile: publicPEM(t, 1)}}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const header = `{"namespace":"prod"}`
	good, err := token.Sign(signer(1), token.NewClaims(clock.Add(-time.Hour), "acme", "echo-1", "uid-1", header))
	if err != nil {
		t.Fatal(err)
	}
	old, err := token.Sign(signer(1), token.NewClaims(clock.Add(-8*24*time.Hour), "acme", "echo-1", "uid-1", header))
	if err != nil {
		t.Fatal(err)
	}
	g := newStage(t, publicKeys(t))
	out, err := g.runWith(t, good+"\n", "token", "verify", "--pod", "echo-1", "--uid", "uid-1", "--function", header)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "verify.txt", out)
	if out, err = g.run(t, "token", "verify", good, "-o", "json"); err != nil || !strings.Contains(out, `"valid": true`) {
		t.Errorf("printed %q, %v", out, err)
	}
	for name, args := range map[string][]string{
		"expired": {old}, "another pod": {good, "--pod", "echo-2"}, "another UID": {good, "--uid", "x"}, "another function": {good, "--function", header + " "},
		"another key": {good, "--public-key-file", keyFile(t, 2)}, "no token": {"x"}, "changed": {good[:len(good)-3] + "AAA"},
	} {
		if _, err := g.run(t, append([]string{"token", "verify"}, args...)...); !errors.Is(err, errNotGenuine) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	for _, args := range [][]string{{good, "--public-key-file", "/does/not/exist"}, {good, "-n", "nowhere"}} {
		if _, err := g.run(t, append([]string{"token", "verify"}, args...)...); err == nil || errors.Is(err, errNotGenuine) {
			t.Errorf("%v: error is %v", args, err)
		}
	}
}

func TestVerifyWithAFileNeedsNoCluster(t *testing.T) {
	t.Parallel()
	text, err := token.Sign(signer(1), token.NewClaims(clock, "acme", "echo-1", "uid-1", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	g := newStage(t)
	g.open = func(connect.Options) (*connect.Cluster, error) { return nil, errors.New("there is no cluster") }
	if _, err := g.run(t, "token", "verify", text, "--public-key-file", keyFile(t, 1)); err != nil {
		t.Error(err)
	}
}

// keyFile has the public half of a signer.
func keyFile(t *testing.T, n byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(file, []byte(publicPEM(t, n)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// rotationStage has a key that signs, and pods that know its public half.
func rotationStage(t *testing.T) (g *stage, first string) {
	t.Helper()
	private, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	public, err := keys.PublicOf(private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keys.Encode([]ed25519.PublicKey{public})
	if err != nil {
		t.Fatal(err)
	}
	return newStage(t,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "skipper-system", Name: privateSecret}, Data: map[string][]byte{privateFile: private}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: publicMap}, Data: map[string]string{publicFile: string(text)}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "skipper-system", Name: "skipper-controller", Labels: map[string]string{"app.kubernetes.io/name": "skipper-controller"}}},
	), keys.Fingerprint(public)
}

// step runs the command once.
func (g *stage) step(t *testing.T, args ...string) rotated {
	t.Helper()
	out, err := g.run(t, append([]string{"keys", "rotate", "-o", "json"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var r rotated
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &r); err != nil { // a remark may stand before
		t.Fatal(err)
	}
	if strings.Contains(out, "PRIVATE") {
		t.Error("a key was printed")
	}
	return r
}

// published counts the public keys that pods have.
func (g *stage) published(t *testing.T) int {
	t.Helper()
	m, err := g.kube.CoreV1().ConfigMaps("prod").Get(t.Context(), publicMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := token.ParsePublicKeys([]byte(m.Data[publicFile]))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// The whole rotation on a cluster: what the Secret, the pods' ConfigMap and the
// controllers' Deployment hold after each step.
func TestRotate(t *testing.T) {
	t.Parallel()
	g, first := rotationStage(t)
	for _, row := range []struct {
		name      string
		before    func()
		args      []string
		want      keys.Step
		done      bool
		published int
		signs     bool // the first key does, when the step begins
	}{
		{"said", nil, nil, keys.Prepare, false, 1, true},
		{"prepared", nil, []string{"--apply"}, keys.Prepare, true, 1, true},
		{"published", nil, []string{"--apply"}, keys.Publish, true, 2, true},
		{"too soon", nil, []string{"--apply"}, keys.WaitForPods, false, 2, true},
		{"switched", func() { g.rewind(t, publishedAt, time.Hour) }, []string{"--apply"}, keys.Switch, true, 2, true},
		{"controllers are of before", nil, nil, keys.Restart, false, 2, false},
		{"controllers are new", func() { g.replaceController(t) }, []string{"--apply"}, keys.WaitForTokens, false, 2, false},
		{"retired", nil, []string{"--apply", "--retire-after", "0s"}, keys.Retire, true, 1, false},
		{"over", nil, nil, keys.Prepare, false, 1, false},
	} {
		if row.before != nil {
			row.before()
		}
		if r := g.step(t, row.args...); r.Step != row.want || r.Done != row.done || g.published(t) != row.published || (r.Current == first) != row.signs {
			t.Fatalf("%s: %+v, pods have %d keys; want %+v", row.name, r, g.published(t), row)
		}
	}
	d, err := g.kube.AppsV1().Deployments("skipper-system").Get(t.Context(), "skipper-controller", metav1.GetOptions{})
	if err != nil || d.Spec.Template.Annotations[restartedAt] == "" {
		t.Errorf("controllers were not restarted: %v", err)
	}
}

// replaceController does what a Deployment that is restarted does.
func (g *stage) replaceController(t *testing.T) {
	t.Helper()
	pods := g.kube.CoreV1().Pods("skipper-system")
	if err := pods.Delete(t.Context(), "controller-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restarted := controllerPod("controller-c", "10.0.0.5")
	restarted.CreationTimestamp = metav1.NewTime(clock)
	if _, err := pods.Create(t.Context(), restarted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// rewind sets an annotation of the signing key's Secret back.
func (g *stage) rewind(t *testing.T, annotation string, by time.Duration) {
	t.Helper()
	s, err := g.kube.CoreV1().Secrets("skipper-system").Get(t.Context(), privateSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Annotations[annotation] = clock.Add(-by).Format(time.RFC3339)
	if _, err := g.kube.CoreV1().Secrets("skipper-system").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

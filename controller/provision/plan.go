package provision

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
	"skipper/proto/signed"
)

// RenewBefore is how long before its end a certificate is issued anew.
const RenewBefore = 60 * 24 * time.Hour

// Object is a Secret or ConfigMap that was found.
type Object struct {
	Version string
	Data    map[string][]byte
}

// State is what was found. What is not in it does not exist.
type State map[Ref]Object

func secret(namespace, name string) Ref { return Ref{"Secret", namespace, name} }

func certificate(namespace string, role identity.Role) Ref {
	return secret(namespace, CertificatePrefix+string(role))
}

// copied are the roles of a gateway.
func copied() []identity.Role { return []identity.Role{identity.Envoy, identity.Extproc} }

// gateways leaves out the system namespace, which has the originals.
func (l Layout) gateways() []string {
	var out []string
	for _, n := range l.Gateways {
		if n != l.System {
			out = append(out, n)
		}
	}
	return out
}

// refs are all objects that a plan is about.
func (l Layout) refs() []Ref {
	out := []Ref{secret(l.System, PrivateKeyName), secret(l.System, AuthorityName)}
	for _, role := range identity.Roles() {
		out = append(out, certificate(l.System, role))
	}
	for _, n := range l.gateways() {
		for _, role := range copied() {
			out = append(out, certificate(n, role))
		}
	}
	for _, n := range l.Functions {
		out = append(out, Ref{"ConfigMap", n, PublicKeyName})
	}
	return out
}

// Plan tells what is to be written, in an order that can stop anywhere and be
// planned again. New keys and certificates are made on the way.
func Plan(l Layout, found State, now time.Time) ([]Change, error) {
	p := plan{l, found, now, nil}
	if err := errors.Join(p.key(), p.certificates()); err != nil {
		return nil, err
	}
	p.copies()
	return p.changes, nil
}

type plan struct {
	Layout
	found   State
	now     time.Time
	changes []Change
}

func (p *plan) write(r Ref, kind corev1.SecretType, data map[string][]byte, reason string) {
	old, replaces := p.found[r]
	p.changes = append(p.changes, Change{r, replaces, old.Version, kind, data, reason})
}

// data is what the object will have after the changes so far.
func (p *plan) data(r Ref) map[string][]byte {
	for _, c := range p.changes {
		if c.Ref == r {
			return c.Data
		}
	}
	return p.found[r].Data
}

// key keeps the signing key that there is, whatever it is: pods that hold tokens
// would refuse another one.
func (p *plan) key() error {
	r := secret(p.System, PrivateKeyName)
	if _, ok := p.found[r]; !ok {
		private, err := newPrivateKey()
		if err != nil {
			return err
		}
		p.write(r, corev1.SecretTypeOpaque, map[string][]byte{PrivateKeyFile: private}, "there is no signing key")
	}
	public, err := publicHalf(p.data(r)[PrivateKeyFile])
	if err != nil {
		return fmt.Errorf("read %s: %w: put an Ed25519 key (PKCS #8, PEM) there, or delete it to have a new one made", r, err)
	}
	for _, n := range p.Functions {
		at := Ref{"ConfigMap", n, PublicKeyName}
		if !holds(p.found[at].Data[PublicKeyFile], public) {
			p.write(at, "", map[string][]byte{PublicKeyFile: public}, "functions check tokens with it")
		}
	}
	return nil
}

// holds tells whether published keys, all readable, are public or have it among
// them. Others beside it are of a rotation that is under way: the one that signs
// next, or the one before, of which tokens are valid still.
func holds(published, public []byte) bool {
	want, err := signed.ParsePublicKeys(public)
	if err != nil {
		return false
	}
	have, err := signed.ParsePublicKeys(published)
	return err == nil && slices.ContainsFunc(have, func(k ed25519.PublicKey) bool { return k.Equal(want[0]) })
}

// certificates issues those that are due.
func (p *plan) certificates() error {
	due, missing := map[identity.Role]string{}, 0
	for _, role := range identity.Roles() {
		r := certificate(p.System, role)
		if _, ok := p.found[r]; !ok {
			missing++
		}
		if reason := Due(p.found[r].Data, p.now); reason != "" {
			due[role] = reason
		}
	}
	if len(due) == 0 {
		return nil
	}
	authority, err := p.authority(missing == len(identity.Roles()))
	if err != nil {
		return err
	}
	for _, role := range identity.Roles() {
		if reason, ok := due[role]; ok {
			if err := p.issue(authority, role, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// authority reads the one that there is. One is made only where no certificate
// is: parts with certificates of two authorities do not trust each other.
func (p *plan) authority(fresh bool) (*issue.Authority, error) {
	r := secret(p.System, AuthorityName)
	if o, ok := p.found[r]; ok {
		a, err := issue.ParseAuthority(issue.Pair{Cert: o.Data[corev1.TLSCertKey], Key: o.Data[corev1.TLSPrivateKeyKey]})
		if err != nil {
			return nil, fmt.Errorf("use %s: %w", r, err)
		}
		return a, nil
	}
	if !fresh {
		return nil, fmt.Errorf("certificates are due, and there is no %s to sign them: renew them with the authority that made the others", r)
	}
	a, err := issue.NewAuthority(p.now)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{corev1.TLSCertKey: a.Cert, corev1.TLSPrivateKeyKey: a.Key}
	p.write(r, corev1.SecretTypeTLS, data, "there is no authority")
	return a, nil
}

func (p *plan) issue(a *issue.Authority, role identity.Role, reason string) error {
	request := issue.Request{Role: role}
	if role == identity.Controller { // the only one that serves
		request.Names = issue.ServiceNames(Service, p.System)
	}
	pair, err := a.Issue(request, p.now)
	if err != nil {
		return err
	}
	r, trusted := certificate(p.System, role), a.Cert
	// Who is changing authorities trusts two of them.
	if old := p.found[r].Data[authorityFile]; bytes.Contains(old, bytes.TrimSpace(a.Cert)) {
		trusted = old
	}
	data := map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key, authorityFile: trusted}
	p.write(r, corev1.SecretTypeTLS, data, reason)
	return nil
}

// copies makes those in other namespaces equal to the originals.
func (p *plan) copies() {
	for _, n := range p.gateways() {
		for _, role := range copied() {
			want := p.data(certificate(p.System, role))
			if at := certificate(n, role); !equal(want, p.found[at].Data) {
				p.write(at, corev1.SecretTypeTLS, want, "gateways run here")
			}
		}
	}
}

func equal(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for name, text := range a {
		if !bytes.Equal(text, b[name]) {
			return false
		}
	}
	return true
}

// Due says why the certificate in a Secret's data must be issued anew; empty: it
// is good for longer than RenewBefore.
func Due(data map[string][]byte, now time.Time) string {
	block, _ := pem.Decode(data[corev1.TLSCertKey])
	if block == nil || len(data[corev1.TLSPrivateKeyKey]) == 0 || len(data[authorityFile]) == 0 {
		return "there is no certificate"
	}
	c, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return fmt.Sprintf("the certificate cannot be read: %v", err)
	case now.Add(RenewBefore).After(c.NotAfter):
		return "the certificate ends " + c.NotAfter.Format(time.DateOnly)
	}
	return ""
}

// newPrivateKey is an Ed25519 key as PKCS #8 in PEM.
func newPrivateKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// publicHalf is the public key of a private one, as PKIX in PEM.
func publicHalf(private []byte) ([]byte, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, errors.New(PrivateKeyFile + " is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is of type %T", parsed)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

//go:build e2e

package multi_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

// trust is the certificates of all parts, in folders like those of mounted
// Secrets: files are links through a link that is moved at each change. Nil is
// plaintext.
type trust struct {
	root  string
	turns int
}

// newTrust has certificates of one authority.
func newTrust(t *testing.T, by *issue.Authority) *trust {
	t.Helper()
	tr := &trust{root: t.TempDir()}
	tr.put(t, by, by)
	return tr
}

func newAuthority(t *testing.T) *issue.Authority {
	t.Helper()
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// dir is the folder of a role.
func (tr *trust) dir(r identity.Role) string {
	if tr == nil {
		return ""
	}
	return filepath.Join(tr.root, string(r))
}

// put gives each role a certificate of by, and lets all trust these authorities.
func (tr *trust) put(t *testing.T, by *issue.Authority, trusted ...*issue.Authority) {
	t.Helper()
	tr.turns++
	var bundle []byte
	for _, a := range trusted {
		bundle = append(bundle, a.Cert...)
	}
	for _, r := range identity.Roles() {
		pair, err := by.Issue(issue.Request{Role: r, Names: []string{"controllers"}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.swap(tr.dir(r), map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": bundle}); err != nil {
			t.Fatal(err)
		}
	}
}

func (tr *trust) swap(dir string, files map[string][]byte) error {
	version := "..v" + strconv.Itoa(tr.turns)
	errs := []error{os.MkdirAll(filepath.Join(dir, version), 0o700)}
	for name, content := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, version, name), content, 0o600))
		if tr.turns == 1 {
			errs = append(errs, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	link := filepath.Join(dir, "..data")
	return errors.Join(append(errs, os.Symlink(version, link+"_tmp"), os.Rename(link+"_tmp", link))...)
}

// operator are credentials for the test's own calls; they do not change.
func (tr *trust) operator(t *testing.T) credentials.TransportCredentials {
	t.Helper()
	return tr.open(t, identity.Operator).Client(identity.Controller)
}

// open reads the certificate of a role as it is now.
func (tr *trust) open(t *testing.T, r identity.Role) *identity.Identity {
	t.Helper()
	at := func(name string) string { return filepath.Join(tr.dir(r), name) }
	i, err := identity.Open(identity.Options{Role: r, Files: identity.Files{Cert: at("tls.crt"), Key: at("tls.key"), CA: at("ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func authority(t *testing.T) *issue.Authority {
	t.Helper()
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request is for a role; every certificate but one for clients has names.
func request(r identity.Role) issue.Request {
	return issue.Request{Role: r, Names: []string{"localhost"}}
}

// write puts a certificate of a and the authorities into dir.
func write(t *testing.T, dir string, a *issue.Authority, r issue.Request, trusted ...*issue.Authority) identity.Files {
	t.Helper()
	pair, err := a.Issue(r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var bundle []byte
	for _, t := range trusted {
		bundle = append(bundle, t.Cert...)
	}
	f := identity.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for path, content := range map[string][]byte{f.Cert: pair.Cert, f.Key: pair.Key, f.CA: bundle} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func open(t *testing.T, a *issue.Authority, r issue.Request, trusted ...*issue.Authority) *identity.Identity {
	t.Helper()
	i, err := identity.Open(identity.Options{Files: write(t, t.TempDir(), a, r, trusted...), Role: r.Role})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// ends are the outcomes of a handshake.
type ends struct {
	client, server error
	role           identity.Role
}

// handshake connects the two over loopback; a nil client shows no certificate.
func handshake(t *testing.T, client, server *identity.Identity, want identity.Role) ends {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var e ends
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			e.server = err
			return
		}
		defer raw.Close()
		_, info, err := server.Server(nil).ServerHandshake(raw)
		e.server = err
		if err == nil {
			e.role, _ = identity.PeerRole(info)
		}
	}()
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if client == nil {
		e.client = tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(t.Context())
	} else {
		_, _, e.client = client.Client(want).ClientHandshake(t.Context(), "10.1.2.3:50051", raw)
	}
	if e.client != nil {
		_ = raw.Close() // else the server waits for the rest
	}
	<-done
	return e
}

func TestHandshakeTellsRoles(t *testing.T) {
	ca := authority(t)
	server := open(t, ca, request(identity.Controller), ca)
	for _, r := range identity.Roles() {
		got := handshake(t, open(t, ca, issue.Request{Role: r}, ca), server, identity.Controller)
		if got.client != nil || got.server != nil || got.role != r {
			t.Errorf("%s: %+v", r, got)
		}
	}
}

func TestServerRefusesStrangers(t *testing.T) {
	ca, foreign := authority(t), authority(t)
	server := open(t, ca, request(identity.Controller), ca)
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	for name, row := range map[string]struct {
		client *identity.Identity
		is     func(error) bool
	}{
		"no certificate":    {nil, func(err error) bool { return errors.Is(err, identity.ErrNoCertificate) }},
		"another authority": {open(t, foreign, request(identity.Extproc), ca), func(err error) bool { return errors.As(err, &unknown) }},
		"expired": {open(t, ca, issue.Request{Role: identity.Extproc, Lifetime: -time.Minute}, ca), func(err error) bool {
			return errors.As(err, &invalid) && invalid.Reason == x509.Expired
		}},
	} {
		if got := handshake(t, row.client, server, identity.Controller); !row.is(got.server) {
			t.Errorf("%s: server says %v", name, got.server)
		}
	}
}

func TestClientRefusesStrangers(t *testing.T) {
	ca, foreign := authority(t), authority(t)
	client := open(t, ca, request(identity.Extproc), ca)
	for name, row := range map[string]struct {
		server *identity.Identity
		want   error
	}{
		"wrong role":            {open(t, ca, request(identity.Envoy), ca), identity.ErrRole},
		"another authority":     {open(t, foreign, request(identity.Controller), ca), nil},
		"expired":               {open(t, ca, issue.Request{Role: identity.Controller, Names: []string{"x"}, Lifetime: -time.Minute}, ca), nil},
		"certificate of client": {open(t, ca, issue.Request{Role: identity.Controller}, ca), nil},
	} {
		got := handshake(t, client, row.server, identity.Controller)
		if got.client == nil || row.want != nil && !errors.Is(got.client, row.want) {
			t.Errorf("%s: client says %v", name, got.client)
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	ca := authority(t)
	good := write(t, t.TempDir(), ca, request(identity.Extproc), ca)
	for want, f := range map[string]identity.Files{
		"authorities":                 {Cert: good.Cert, Key: good.Key, CA: good.CA + "-missing"},
		"certificate and key":         {Cert: good.Cert, Key: good.CA, CA: good.CA},
		"found PRIVATE KEY":           {Cert: good.Cert, Key: good.Key, CA: good.Key},
		"it is extproc, want":         good,
		"want exactly one URI":        write(t, t.TempDir(), ca, request("nobody"), ca),
		"TLS key":                     {Cert: good.Cert, CA: good.CA},
		"TLS authorities: found no c": write(t, t.TempDir(), ca, request(identity.Controller)),
	} {
		_, err := identity.Open(identity.Options{Files: f, Role: identity.Controller})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestValidateWantsExactlyOneOfTheTwo(t *testing.T) {
	all := identity.Files{Cert: "c", Key: "k", CA: "a"}
	for _, row := range []struct {
		files     identity.Files
		plaintext bool
		ok        bool
	}{
		{all, false, true},
		{identity.Files{}, true, true},
		{all, true, false},
		{identity.Files{}, false, false},
		{identity.Files{Cert: "c", Key: "k"}, false, false},
		{identity.Files{CA: "a"}, true, false},
	} {
		if err := row.files.Validate(row.plaintext); (err == nil) != row.ok {
			t.Errorf("%+v, plaintext %v: %v", row.files, row.plaintext, err)
		}
	}
}

// rotating is an Identity that looks at its files all the time.
func rotating(t *testing.T, f identity.Files) (*identity.Identity, *observer.ObservedLogs, *prometheus.Registry) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	registry := prometheus.NewRegistry()
	i, err := identity.Open(identity.Options{Files: f, Role: identity.Controller, Every: time.Millisecond, Logger: zap.New(core), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return i, logs, registry
}

// until waits for a line of the log.
func until(t *testing.T, logs *observer.ObservedLogs, message string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for logs.FilterMessage(message).Len() == 0 {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("never logged: %s", message)
		}
	}
}

const (
	tookOver = "TLS files changed: the next connection uses them"
	broken   = "TLS files cannot be used: the last good ones stay in use"
)

func TestChangedFilesAreUsedByTheNextConnection(t *testing.T) {
	old, next := authority(t), authority(t)
	dir := t.TempDir()
	server, logs, registry := rotating(t, write(t, dir, old, request(identity.Controller), old))
	client := open(t, next, request(identity.Extproc), next)
	if got := handshake(t, client, server, identity.Controller); got.client == nil {
		t.Fatal("client trusts an authority that it does not know")
	}
	write(t, dir, next, request(identity.Controller), next, old)
	until(t, logs, tookOver)
	// Files are written one after the other: the last state is the one that counts.
	for got := handshake(t, client, server, identity.Controller); got.client != nil || got.server != nil; got = handshake(t, client, server, identity.Controller) {
		if t.Context().Err() != nil {
			t.Fatalf("new files, old outcome: %+v", got)
		}
	}
	if got, err := testutil.GatherAndCount(registry); err != nil || got != 3 {
		t.Errorf("%d metrics, %v", got, err)
	}
}

func TestBrokenFilesChangeNothing(t *testing.T) {
	ca := authority(t)
	dir := t.TempDir()
	f := write(t, dir, ca, request(identity.Controller), ca)
	server, logs, _ := rotating(t, f)
	before := server.Expires()
	if err := os.WriteFile(f.Cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, logs, broken)
	if got := handshake(t, open(t, ca, request(identity.Extproc), ca), server, identity.Controller); got.client != nil || got.server != nil {
		t.Errorf("after broken files: %+v", got)
	}
	if !server.Expires().Equal(before) {
		t.Errorf("expires %v, want %v", server.Expires(), before)
	}
	write(t, dir, ca, request(identity.Controller), ca)
	until(t, logs, tookOver)
}

// An updated Secret is a folder that a symbolic link is moved to.
func TestSwappedFolderIsNoticed(t *testing.T) {
	ca := authority(t)
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name), ca, request(identity.Controller), ca)
	}
	link := filepath.Join(root, "data")
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	_, logs, _ := rotating(t, identity.Files{Cert: filepath.Join(link, "tls.crt"), Key: filepath.Join(link, "tls.key"), CA: filepath.Join(link, "ca.crt")})
	if err := errors.Join(os.Symlink("b", link+"-new"), os.Rename(link+"-new", link)); err != nil {
		t.Fatal(err)
	}
	until(t, logs, tookOver)
}

func TestFromPEMIsAsGoodAsFiles(t *testing.T) {
	a := authority(t)
	pair, err := a.Issue(request(identity.Operator), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	i, err := identity.FromPEM(identity.Operator, pair.Cert, pair.Key, a.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(i.Expires()); left <= 0 {
		t.Errorf("ends in %v", left)
	}
	if _, err := identity.FromPEM(identity.Envoy, pair.Cert, pair.Key, a.Cert); !errors.Is(err, identity.ErrRole) {
		t.Errorf("another role: %v", err)
	}
	if _, err := identity.FromPEM(identity.Operator, pair.Cert, nil, a.Cert); err == nil {
		t.Error("no key: no error")
	}
}

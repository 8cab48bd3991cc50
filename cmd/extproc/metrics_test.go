package main

import (
	"testing"
	"time"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
	"skipper/test/metricspage"
)

// What an extproc with TLS and function keys shows that has answered nobody yet
// is the table of the page: so a metric that only appears when something has gone
// wrong is missing here.
func TestMetricsAreDocumented(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.Open(identity.Options{Files: certificate(t, a, identity.Controller), Role: identity.Controller})
	if err != nil {
		t.Fatal(err)
	}
	_, keys := signingKey(t)
	s := startSidecar(t, newSecurePlane(t, id.Server(nil), "10.0.0.1:80"), func(c *config) {
		c.plaintext, c.tls = false, certificate(t, a, identity.Extproc)
		c.functions.publicKeys = []string{keys}
	})
	metricspage.Hold(t, "extproc", s.metrics(t), *update)
}

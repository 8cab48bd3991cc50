package main

import (
	"testing"

	"skipper/proto/identity"
	"skipper/test/metricspage"
)

// What an extproc with TLS and function keys shows that has answered nobody yet
// is the table of the page: so a metric that only appears when something has gone
// wrong is missing here.
func TestMetricsAreDocumented(t *testing.T) {
	a, p := newTrustedPlane(t)
	_, keys := signingKey(t)
	s := startSidecar(t, p, func(c *config) {
		c.plaintext, c.tls = false, certificate(t, a, identity.Extproc)
		c.functions.publicKeys = []string{keys}
	})
	metricspage.Hold(t, "extproc", s.metrics(t), *update)
}

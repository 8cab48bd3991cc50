// Package monitoring holds what a monitoring system needs to watch Skipper, and
// the tests that keep it true: every expression parses, names only metrics that
// exist with labels that they have, and every alert has a page in docs.
// A module of its own, so that Skipper does not depend on Prometheus.
package monitoring

// Package doctor finds what is set up wrongly in a cluster with Skipper, or does
// not work, and says what to do about it.
//
// Collect asks Kubernetes and the controllers and never fails: what it could not
// learn is one of the facts. Diagnose turns facts into findings and is pure, so
// each check is a table of facts and findings in the tests.
package doctor

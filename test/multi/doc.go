// Package multi tries several controllers, as processes of their own, on a real
// API server with a hollow node: who gets which pod when all claim at once, what
// a caller sees when a replica is killed in the middle of its call, and what
// Envoy and extproc do when one falls silent, or when all certificates change.
//
// Its tests run with the build tag e2e and need KUBECONFIG, the rights of an
// administrator, because they register a node, and Envoy (package envoytest).
package multi

// Package multi tries several controllers, as processes of their own, on a real
// API server with a hollow node: who gets which pod when all claim at once, and
// what a caller sees when a replica is killed in the middle of its call.
//
// Its tests run with the build tag e2e and need KUBECONFIG, and the rights of
// an administrator, because they register a node.
package multi

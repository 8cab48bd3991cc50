// Package pool knows every function pod: what it is, what state it is in, and
// which function it serves.
//
// Pod is an immutable value read from a Kubernetes pod by the pure FromPod.
// View owns all of them: what the informers have shown, and above it what this
// replica has written but the informers have not shown yet. Nothing here talks
// to Kubernetes, and nothing ever writes into an informer's store.
package pool

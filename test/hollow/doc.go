// Package hollow makes a node without a kubelet on a real API server: pods that
// exist as objects only, whose status this package sets, and whose assignment
// endpoint it serves itself, at an address of its own for each pod. So several
// controllers can be tried on hundreds of pods on one small machine.
//
// Addresses are those of the loopback network, so controllers must run on the
// same machine; StartController does that.
package hollow

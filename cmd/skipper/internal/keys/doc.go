// Package keys decides how the key that signs assignment tokens is replaced
// without an assignment that a pod refuses: pods learn the new public key
// first, then controllers sign with the new private one, and when no token of
// the old one is valid any more, pods forget it.
//
// Where a rotation stands is read from the cluster each time, so it may be left
// and taken up again by anybody. Plan decides, without I/O.
package keys

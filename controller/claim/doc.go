// Package claim takes pods out of their pools: it decides which pod, writes the
// claim as one compare-and-set, and lets those who wait for a pod have one
// first come, first served.
//
// Patch, Judge and Rank are pure. The Claimer owns the queues of waiting
// callers and the reservations that keep one replica from racing itself; the
// state of the pods belongs to pool.View.
package claim

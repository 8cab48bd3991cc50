// Package inflight holds the one truth about what is in progress, from two
// witnesses: Envoys' load reports, and the heartbeats of routers.
//
// On a pod, by each Envoy, the greater of the two counts: extproc knows of a
// request first, and Envoy still knows when extproc has died. What different
// Envoys say adds up, and so does what routers say that name no Envoy. Pod,
// Function and Known decide that and are pure.
//
// The Store owns the load reports: those of the Envoys that are connected here,
// understood by Addresses, and those that other replicas tell of theirs. The
// newest word about an Envoy counts, wherever it was heard, until the expiry
// after its receipt: an Envoy that is silent may still be at work. A Sharer
// tells the other replicas.
package inflight

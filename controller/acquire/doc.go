// Package acquire gets a function an instance: one that it has, or one from
// its pool, claimed and assigned.
//
// The Acquirer joins claim, assign and retire. It owns the flights by which
// many callers that wait for one cold function share one assignment, and the
// background writes of ready-at. Decide, which says whether a function needs
// another pod, is pure.
package acquire

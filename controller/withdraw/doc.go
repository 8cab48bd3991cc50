// Package withdraw knows which pods have left routing, and who may not have
// heard of it yet.
//
// A withdrawal is a claimed pod that drains, is being deleted, has died or has
// vanished. It is closed once every replica on the ring says that its informers
// have passed it, and that all its subscribers have acknowledged a list without
// the pod. A subscriber that went away without goodbye counts as one that has
// not acknowledged, until it is back in step with some replica or its table has
// expired. Drains may end, and addresses be used again, only after that.
//
// Replicas exchange their open withdrawals: each asks the others about its own,
// and a replica that is asked about a pod that it never saw claimed makes the
// withdrawal its own, so that a subscriber which heard of the pod from somebody
// else hears of its end.
//
// The book holds all state and decides, purely, with the time as an argument.
// Tracker owns the book, feeds it, and makes the calls.
package withdraw

// Package forward takes calls to the replica that is responsible, and
// heartbeats to all of them.
//
// A call is forwarded at most once: whoever receives a forwarded call executes
// it. An owner that cannot be reached is passed over for the next one on the
// ring, and at last the call is executed where it came in, because claims are
// compare-and-set and nothing breaks when two replicas think they own a
// function. Route decides that and is pure.
//
// Peers own the connections, one to each other member, kept warm; each has one
// goroutine that keeps it connected and finds out whether the other end still
// lives, and one that sends heartbeats.
package forward

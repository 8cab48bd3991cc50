// Package supervise keeps each active function at the number of instances that
// it needs: one supervisor per function, made when it is first heard of and
// gone when it has neither instances nor heartbeats.
//
// A supervisor is a small record and an entry of a shared queue, not a
// goroutine: 10,000 idle ones cost their record and one converge each scale
// interval. Only one converge of a function runs at a time. What to do is
// decided by pure functions (package scale, plan.go); doing it is left to the
// acquirer and the retirer.
//
// Stale instances are replaced one for one: the replacement is assigned first
// and counts in place of the stale one from then on, then the stale one drains.
// Which metadata and scale are in force is what callers agree on (force.go); it
// is the Supervisors' own record, made anew from the instances after a restart.
//
// A function whose only user is Scale: the number asked for is brought about at
// once and recorded as a recommendation of the stabilisation window, and counts
// as a use. So what was scaled up stays for the window and, unless heartbeats
// follow, goes after the heartbeat timeout; what was scaled down may be scaled
// up again by the next converge if the metrics ask for it.
package supervise

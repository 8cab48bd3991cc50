// Package events remembers what a controller did lately, and why, for people
// who ask later: in a Log, which GetClusterState shows, and on the pods
// themselves as Kubernetes Events, which a Recorder writes.
//
// Telling never waits: the Log overwrites its oldest entries, the Recorder
// drops what it cannot write in time and counts it. So nothing here may be
// relied upon by a decision.
package events

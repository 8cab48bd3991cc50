// Package watch brings the cluster's pods and ReplicaSets into the controller
// by informers.
//
// It reads an object as soon as it arrives and hands on what it read, nothing
// else; what it means is for pool.View and the ring to decide. The informers'
// stores hold what was read in place of the pods, so that 50,000 of them stay
// affordable.
package watch

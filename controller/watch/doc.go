// Package watch brings the cluster's pods and ReplicaSets into the controller
// by informers.
//
// Its handlers convert an object and hand it on, nothing else; what it means
// is for pool.View and the ring to decide. The informers' stores hold only the
// fields that are read, so that 50,000 pods stay affordable.
package watch

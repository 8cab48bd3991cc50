// Package sim lives through days of a cluster in virtual time: several
// controllers, made of their real parts, share a few functions while pods fail,
// caches lag, clocks differ, views of the ring disagree, gateways are killed or
// cut off and roll-outs happen; and then calm comes.
//
// What is real: of the controller its view, claimer, acquirer, refusals,
// retirer, supervisors, ring, heartbeats, load reports and their sharing,
// withdrawals, publisher and gRPC service; of extproc its table, the choice of
// an instance and the messages of heartbeats. What is modelled, simply enough to
// be believed: the API server (compare-and-set patches, versions, deletion with
// grace), the ReplicaSet controller and the kubelet, informers that show the API
// server's log late, the network, Envoy, and the delivery of lists.
//
// A clock that is wrong is a translation of all times that cross the border of
// the replica whose clock it is: what it writes, and what it reads.
//
// The world knows the truth, and holds every write against it (oracle): what it
// finds is a violation of an invariant of the architecture, by its number.
// TestBroken proves that it finds something: each variant breaks one rule, and
// is caught within the number of schedules that the tests run.
//
// A seed decides what happens to the world; how goroutines of the controllers
// interleave, and their own random choices, differ from run to run. So one
// schedule is repeated with -sim.seed and, where it takes luck, -sim.repeat.
package sim

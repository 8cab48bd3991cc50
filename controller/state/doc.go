// Package state puts together what GetClusterState answers: the view over all
// replicas, from any of them.
//
// Each replica reports its part: itself, the functions that it is responsible
// for, its events, its streams and who waits at it. A Gatherer asks the others
// for theirs at the same time, joins the parts, and adds what every replica
// knows of the cluster. A replica that does not answer in time is named with
// the reason, and what it alone knows is missing; the functions that it is
// responsible for are shown as the asked replica sees them.
//
// Everything is sorted. Nothing is kept between two questions.
package state

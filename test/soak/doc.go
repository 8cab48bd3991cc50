// Package soak tries to make a request reach another tenant's pod, and a oneshot
// pod serve twice.
//
// All parts are real but the pods: controllers, and Envoys with extproc beside
// them, are processes on loopback addresses; the API server is that of the
// local cluster. Pods are objects on a hollow node whose processes are servers in
// the test, on a range of addresses that is too small for them, so that each
// address goes to the next pod, and to another tenant, the moment it is free.
// Meanwhile pods die, parts are killed and restarted, watches freeze, and the
// network between parts and controllers stops passing bytes; all of it follows
// from a seed. Every pod looks at who asks, and every client at who answers.
//
// There are two images. A guarded pod uses the function package and refuses what
// is meant for another pod; a plain one takes its assignment and then whatever
// comes, so that the other layers must hold by themselves.
package soak

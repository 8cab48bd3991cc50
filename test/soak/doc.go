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
// What controllers and extprocs hold is sampled all the while: goroutines, open
// files and memory must stay flat (Steady).
//
// There are two images. A guarded pod uses the function package and refuses what
// is meant for another pod; a plain one takes its assignment and then whatever
// comes, so that the other layers must hold by themselves.
//
// Each layer of isolation is also tried alone, the others off, at one address
// that a stale gateway believes to be that of a dead pod (TestLayer1PodRefuses
// to TestLayer4FenceHoldsTheAddress); TestNoLayerCatchesNothing shows that the
// danger is real. What each decides is tested where it lives: layer 1 in package
// function (TestGuard) and, with what becomes of a refusal, in package envoy
// (TestNextPassTakesOver); layer 2 in package xds (TestShardOfFollowsFromTheUIDAlone)
// and with the same test of package envoy; layer 3 in extproc/table (TestStaleness)
// and extproc/stream (TestStaleTableIsNotUsed); layer 4 in controller/fence and
// controller/withdraw.
package soak

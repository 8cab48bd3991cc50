// Package server serves clusters, endpoints and the instances of functions to
// Envoys and extprocs over delta xDS, on one aggregated stream each.
//
// The controller feeds it with Apply and opens it with Open after the first
// full build; before that, streams wait, so that nobody ever sees an empty
// world from a fresh replica. Apply never waits for a subscriber: what changes
// is remembered per stream by name, and each stream's own goroutine sends the
// newest form as soon as the client has answered the response before. A client
// that does not answer for Options.StuckAfter is closed; others notice nothing.
//
// The protocol is served by our own loop over go-control-plane's types rather
// than by its LinearCache (0.14), for four reasons. It follows what each
// subscriber has acknowledged, which the fence for reused addresses and
// draining need and which the library does not keep (it takes a rejected
// response for an accepted one). It creates a resource at its first
// subscription and drops it with the last, without a race. It sends endpoints
// again after it has changed their cluster, without which Envoy keeps the new
// cluster warming. And its cost follows the change: the library walks all names
// of a subscriber for each of its updates and requests, which at 10,000
// functions per extproc is the larger part of all work (BenchmarkSubscribe and
// BenchmarkLinearCacheSubscribe compare the two).
package server

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
// than by its LinearCache (0.14), for four reasons:
//   - It keeps what each subscriber has acknowledged, which the fence for reused
//     addresses and draining need. The library takes a rejected response for an
//     accepted one and keeps neither.
//   - It makes a resource at the first subscription to it and drops it with the
//     last, without a race against a change in between.
//   - It sends endpoints again after a change of their cluster. Envoy 1.40 does
//     not ask for them, and without them all but one of 512 changed clusters
//     stayed warming; with them none did.
//   - Its cost follows the change. The library walks all names of a subscriber
//     at each of its requests and updates: 2,000 functions subscribed to one by
//     one cost it 2,300 ms and this loop 17 ms (BenchmarkLinearCacheSubscribe,
//     BenchmarkSubscribe), and it grows with the square.
//
// A change of one endpoint among 50,000 costs less than 0.1 ms per subscriber
// (BenchmarkApplyOne).
package server

// Package loads takes Envoys' load reports (LRS): how many requests each Envoy
// has in progress on which endpoint, once a second.
//
// A report is whole and leaves out zeros: an endpoint of ours that it does not
// name has nothing in progress there. Envoy says hello with an empty message,
// which is no report; on a new stream after the first one its hello is a report
// already. What reports mean for pods is the Sink's business.
//
// What Envoy 1.40 sends (package inflight tests it with the real one): every
// cluster that it knows, static ones too; below it an endpoint as long as it has
// requests in progress, even if none has begun or ended in the interval, and
// once more after the last one has ended. By its source, a cluster that is
// changed gives its endpoints new counters, and what was in progress before is
// no longer reported; and after the end of a stream it waits 5 s before it
// begins another.
package loads

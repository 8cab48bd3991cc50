// Package lifetime holds extproc to its word about the end of a request, on real
// Envoys: whatever the end, one stream of Envoy lived exactly as long as the
// request, nothing stays in progress, and the pod of a oneshot is given back once.
//
// Envoy and extproc are the real programs. The controller is a stand-in that
// counts what it is asked and told, and speaks the real xDS; pods are addresses of
// one server on the loopback network that does what the request asks for. So it
// needs no cluster.
//
// The rows of TestEnds are data; docs/lifetimes.md is written from them, and the
// test compares it. The other tests send crowds: clients that leave during a cold
// start, a queue before an empty pool, thousands of requests that are held open.
package lifetime

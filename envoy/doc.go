// Package envoy builds the bootstrap of a Skipper gateway: an Envoy that asks
// extproc where each request goes and takes clusters and endpoints from the
// controllers. Everything is made of Envoy's own message types and checked
// before it is rendered; the package reads no file and talks to nobody.
//
// The clusters and endpoints of the pods are not here: the controllers send
// them, and a route names one by the header that extproc sets.
//
// # Passes
//
// A request goes on when no pod has begun to work on it: Envoy did not know
// the pod that extproc named, could not connect to it, had its HTTP/2 stream
// refused, or the pod said that the request was meant for another
// (x-skipper-misdirected). It goes on in the next pass, with a new ext_proc
// stream, in which extproc picks again.
//
//	ingress --ext_proc--> skipper-http1-007-routed --1--> skipper-http1-007 --> pod
//	                                               \-2--> skipper-second-pass
//	second_pass --ext_proc--> skipper-http1-042-routed --1--> ... and so on
//
// A routed cluster tries the shard in the first attempt and the second pass in
// the second; within one attempt, too, if the shard has no such host. The
// second pass is an internal listener of the same Envoy with a connection
// manager like the first. What extproc is told in a later stream:
//
//   - x-skipper-request is what the first stream set, and x-skipper-function
//     is gone;
//   - x-envoy-attempt-count is 1 where Envoy did not know the host of the pass
//     before, and 2 where the host was tried and failed.
//
// Passes nest: the second pass routes to a routed cluster again, so a third
// follows it in the same way. Each pass is one pick, at most one pod, and at
// most one next pass, so nothing multiplies: what a pass answers, be it the
// pod's word or a local reply, is never tried again by the pass before, because
// that one has had its second attempt and the header that would ask for one is
// removed. Envoy does not count passes; extproc ends them with its answer after
// as many as it allows. The other form that was considered, a second pass with
// retries over a list of hosts, bounds passes by itself, but extproc would
// have to name all hosts before it knows how the first fared, and a pod that
// Envoy does not know would end it.
//
// A request that a pod may have begun to work on is never sent again. That
// includes one lost on a connection that the pod closed just then: nothing
// tells it from one that was read. It ends with 503 instance_reset.
//
// The same request is sent again only with its whole body, of which Envoy keeps
// Config.RetryBuffer in each pass, from the pick until the answer is complete.
// Larger ones go to one pod only: 503 body_not_replayable when that was the
// wrong one, connect_failed when it took no connection. Envoy takes in as much
// while it connects, so a bound below a body's size fails it even where nothing
// was sent; a held request keeps to Config.BufferLimit.
//
// Trust: the first pass removes what only Skipper may say, and sets the headers
// for the pod; later passes change nothing, and no client reaches them: an
// internal listener has no socket, and the header that names a cluster is
// removed at the edge. A reason that a pod writes is removed in each pass, one
// that a later pass gave is kept; see keepReasonsOfPasses.
//
// # Access log
//
// Config.AccessLog writes one JSON object per line and pass to standard output.
// Members without a value are left out. What names the function and the pod is
// extproc's word, checked before; what describes the request is the client's.
//
//	time                the start of the request, UTC
//	listener            ingress, the name of a further listener, or second_pass
//	namespace, deployment, tenant
//	                    the function; absent where the header was refused
//	instance            the pod's UID
//	request             x-skipper-request, the same in each pass of a request
//	upstream, cluster   the pod's address and its cluster; in a pass that was
//	                    followed by another, those of the next pass
//	attempts            in this pass: 1, 2 where the next pass was tried, 0 where
//	                    there was nobody to send to
//	status, reason      what was answered, and x-skipper-reason
//	flags, details, failure
//	                    Envoy's response flags ("-": none), response code
//	                    details, and why a connection failed
//	client, method, host, path, protocol
//	                    the request; the path without its query
//	received, sent      bytes of bodies
//	upstream_ms         until the pod was sent the first byte: the wait for an
//	                    instance and for a connection
//	answer_ms           until the pod answered its first byte
//	duration_ms         until the end
//
// The lines of a request come last pass first; that of the first pass tells what
// the client got. Neither the header that names the function, which may be a
// token, nor the query is logged.
//
// Cost: a routed cluster has no endpoints, so an update of endpoints costs what
// it does without (0.6 ms of Envoy's CPU either way at 50,000 endpoints in 512
// shards); 512 of them take about 12 MB and 0.1 s of CPU at the start.
// Load reports name the shard and the pod's address in every pass; the second
// pass itself is reported as an endpoint without address.
package envoy

// Package web is the controllers' web interface: what GetClusterState knows, as
// pages that keep themselves up to date. It only reads, shows no function's
// metadata (which may hold what is the tenant's alone), and asks for the state
// once for all who look at the same page.
//
//	GET /                the page; everything else it needs is below /ui/
//	GET /ui/api/cluster  pools, controllers, Envoys, functions, events
//	GET /ui/api/function the same of one function, with its instances
//
// Both answer with JSON, or with a stream of server-sent events where the client
// accepts text/event-stream.
package web

// Package envoy builds the bootstrap of a Skipper gateway: an Envoy that asks
// extproc where each request goes and takes clusters and endpoints from the
// controllers. Everything is made of Envoy's own message types and checked
// before it is rendered; the package reads no file and talks to nobody.
//
// The clusters and endpoints of the pods are not here: the controllers send
// them, and a route names one by the header that extproc sets.
package envoy

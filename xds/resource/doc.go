// Package resource builds the xDS resources that Skipper serves: clusters,
// their endpoints, and the instances of one function.
//
// Everything is a pure function of its arguments: equal input in any order
// gives equal resources, byte for byte, and so equal versions on every
// controller replica. Nothing here keeps state, reads a clock or logs.
package resource

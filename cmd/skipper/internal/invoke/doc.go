// Package invoke sends one request to a function through the gateway, as a
// client would, and tells what became of it: who answered, and how long each
// stage took.
package invoke

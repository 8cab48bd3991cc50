// Package tools pins the tools of `make generate` and `make check` in a module
// of its own, so that they never decide which versions the product is built with.
package tools

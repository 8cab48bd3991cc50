// Package lint pins the linters of `make lint` in a module of its own.
package lint

// Package docs holds pages of the documentation to the code: the references of
// flags and of the gRPC interface are written from it, and the snippets of
// configuration are read by the types that they are for. -update rewrites what
// is written.
package docs

// Package wire reads and writes the few messages of Envoy's external processing
// protocol that extproc exchanges, straight from and to bytes.
//
// A warm answer depends only on the instance and the request id. Its bytes are
// made once per instance; the id is appended as a message of its own, because
// protobuf merges messages that follow each other. Tests hold both directions
// against the generated types. Nothing here decides anything.
package wire

// Package trust decides who may call what on the controllers' gRPC port.
//
// A Gate takes the role out of the caller's certificate (package identity) and
// looks it up in one table, method by method; on xDS streams also type by type.
// What the table does not name is refused to everybody, and Check reports it at
// the start of the process, so that a service added later cannot be open, or
// closed, by oversight. Without TLS, which must be asked for, all callers may
// do everything.
//
// Refusals are counted by cause, and said in the log at a bounded rate: a port
// that a tenant's pod can reach must not let it fill the disk.
package trust

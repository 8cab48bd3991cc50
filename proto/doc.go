// Package skipperpb is the contract between routers, controllers and
// operators: the messages and the service of skipper.proto, generated.
//
// Field numbers and names below 20 are fixed by programs that are not ours;
// contract_test.go pins them. Everything here is generated but this comment:
// change skipper.proto and run `make generate`.
package skipperpb

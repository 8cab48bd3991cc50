// Package skipperpb is the contract between routers, controllers and
// operators: the messages and the service of skipper.proto, generated.
//
// Field numbers and names below 20 are fixed by programs that are not ours;
// contract_test.go pins them. All but this comment, the retry
// policy (retry.go) and the enums in words (words.go) is generated: change
// skipper.proto and run `make generate`.
package skipperpb

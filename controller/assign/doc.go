// Package assign tells a claimed pod which function it serves: it mints the
// token, posts the assignment, and remembers which functions' pods keep
// refusing theirs.
//
// Minter, Refusals and the reading of answers are free of I/O; the Poster does
// the one request. Nothing here writes to Kubernetes, and tokens are never
// logged.
package assign

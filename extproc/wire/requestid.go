package wire

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// RequestIDs makes unguessable request ids. The zero value is ready; safe for
// concurrent use.
type RequestIDs struct{ pool sync.Pool }

// entropy is a block of random bytes that is used up front to back, so that the
// kernel is asked once for many ids.
type entropy struct {
	bytes [1024]byte
	left  int
}

// New returns 128 random bits in hexadecimal.
func (r *RequestIDs) New() (id [RequestIDLen]byte) {
	e, ok := r.pool.Get().(*entropy)
	if !ok {
		e = &entropy{}
	}
	if e.left < RequestIDLen/2 {
		_, _ = rand.Read(e.bytes[:]) // never fails: crypto/rand ends the process instead
		e.left = len(e.bytes)
	}
	part := e.bytes[len(e.bytes)-e.left:][:RequestIDLen/2]
	hex.Encode(id[:], part)
	clear(part)
	e.left -= RequestIDLen / 2
	r.pool.Put(e)
	return id
}

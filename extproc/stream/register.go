package stream

import (
	"encoding/binary"
	"sync"

	"skipper/extproc/wire"
)

// registerBuckets is a power of two. Each bucket has a lock of its own and holds
// few requests, even with tens of thousands in progress.
const registerBuckets = 4096

// register finds a request in progress by its id. It holds what has its memory
// elsewhere, one request per open stream at most, and allocates nothing. The zero
// value is ready; safe for concurrent use.
type register struct{ buckets [registerBuckets]bucket }

type bucket struct {
	mu    sync.Mutex
	first *request
}

// bucketOf spreads by the first digits of the id, which is random. id has the
// length of a request id.
func (g *register) bucketOf(id []byte) *bucket {
	const spread = 0x9e3779b97f4a7c15
	return &g.buckets[binary.LittleEndian.Uint64(id)*spread>>52]
}

func (g *register) add(r *request) {
	b := g.bucketOf(r.id[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	r.next, b.first = b.first, r
}

func (g *register) remove(r *request) {
	b := g.bucketOf(r.id[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := &b.first; *at != nil; at = &(*at).next {
		if *at == r {
			*at, r.next = r.next, nil
			return
		}
	}
}

// find returns the request with the given id, nil where there is none.
func (g *register) find(id []byte) *request {
	if len(id) != wire.RequestIDLen {
		return nil
	}
	b := g.bucketOf(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := b.first; r != nil; r = r.next {
		if string(r.id[:]) == string(id) {
			return r
		}
	}
	return nil
}

// Package header turns the bytes of an X-Skipper-Function header into a checked
// function, and remembers the answers in a bounded cache that is read without
// locks. A header is a function of its bytes alone, so nothing ever expires.
package header

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// Function is a function as one header names it. Immutable, shared.
type Function struct {
	Key fn.Key
	// Name is that of the function's xDS resource; it identifies the function.
	Name string
	// Hash is a hash of Name, the same for all headers that name this function.
	Hash uint64
	// Spec is the function with metadata and scale; read only.
	Spec *skipperpb.Function
}

// Of describes a function that is valid.
func Of(f *skipperpb.Function) *Function {
	k := fn.KeyOf(f)
	name := xds.InstancesName(k)
	return &Function{Key: k, Name: name, Hash: HashName(name), Spec: f}
}

// HashName is the hash of a resource name that Function.Hash holds.
func HashName(name string) uint64 { return xxhash.Sum64String(name) }

// ways is how many headers with the same hash bits the cache holds.
const ways = 8

// maxCached is the longest header that is remembered, in bytes: with it the size
// of the cache is bounded, and few headers are longer.
const maxCached = 2 << 10

// Cache holds parsed headers. Safe for concurrent use.
type Cache struct {
	seed maphash.Seed
	sets []set
}

// set is one row of the cache; the hand goes round and passes over entries that
// were read since it last came by.
type set struct {
	slots [ways]atomic.Pointer[entry]
	hand  atomic.Uint32
}

type entry struct {
	hash     uint64
	raw      []byte
	function *Function
	used     atomic.Bool
}

// NewCache makes a cache for about the given number of headers, rounded up to a
// power of two; at least 8.
func NewCache(headers int) *Cache {
	n := 1
	for n*ways < headers {
		n *= 2
	}
	return &Cache{seed: maphash.MakeSeed(), sets: make([]set, n)}
}

// Parse returns the function that raw names. Errors are fn.Parse's and are meant
// for the client; they are not remembered. raw is copied where it is kept.
func (c *Cache) Parse(raw []byte) (*Function, error) {
	h := maphash.Bytes(c.seed, raw)
	s := &c.sets[h&uint64(len(c.sets)-1)]
	if f := s.find(h, raw); f != nil {
		return f, nil
	}
	spec, err := fn.Parse(raw)
	if err != nil {
		return nil, err
	}
	f := Of(spec)
	if len(raw) <= maxCached {
		s.put(&entry{hash: h, raw: bytes.Clone(raw), function: f})
	}
	return f, nil
}

func (s *set) find(h uint64, raw []byte) *Function {
	for i := range s.slots {
		e := s.slots[i].Load()
		if e == nil || e.hash != h || !bytes.Equal(e.raw, raw) {
			continue
		}
		if !e.used.Load() { // a store on each read would move the line between cores
			e.used.Store(true)
		}
		return e.function
	}
	return nil
}

// put replaces the first entry that was not read since the hand's last visit.
func (s *set) put(e *entry) {
	for range 2 * ways {
		i := s.hand.Add(1) % ways
		old := s.slots[i].Load()
		if old == nil || !old.used.Swap(false) {
			s.slots[i].Store(e)
			return
		}
	}
	s.slots[s.hand.Add(1)%ways].Store(e)
}

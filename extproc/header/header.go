// Package header turns the bytes of an X-Skipper-Function header into a checked
// function, and remembers the answers in a bounded cache that is read without
// locks. What bytes stand for never changes; when it holds is part of it.
package header

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"
	"time"

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

// MaxCached is the longest header that is remembered, in bytes: with it the size
// of the cache is bounded, and few headers are longer.
const MaxCached = 4 << 10

// Meaning is what the bytes of a header stand for.
type Meaning struct {
	Function *Function
	// From and Until are when it holds; both zero: always.
	From, Until time.Time
}

// Cache holds what was read from headers. Safe for concurrent use.
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
	hash    uint64
	raw     []byte
	meaning Meaning
	used    atomic.Bool
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

// Parse reads the JSON of a function, which always holds. Errors are fn.Parse's
// and are meant for the client.
func Parse(raw []byte) (Meaning, error) {
	spec, err := fn.Parse(raw)
	if err != nil {
		return Meaning{}, err
	}
	return Meaning{Function: Of(spec)}, nil
}

// Read returns what raw stands for, from memory if it is there, else by read,
// which must depend on the bytes alone and be the same for all calls. Its errors
// are not remembered. raw is copied where it is kept.
func (c *Cache) Read(raw []byte, read func([]byte) (Meaning, error)) (Meaning, error) {
	h := maphash.Bytes(c.seed, raw)
	s := &c.sets[h&uint64(len(c.sets)-1)]
	if e := s.find(h, raw); e != nil {
		return e.meaning, nil
	}
	m, err := read(raw)
	if err != nil {
		return Meaning{}, err
	}
	if len(raw) <= MaxCached {
		s.put(&entry{hash: h, raw: bytes.Clone(raw), meaning: m})
	}
	return m, nil
}

func (s *set) find(h uint64, raw []byte) *entry {
	for i := range s.slots {
		e := s.slots[i].Load()
		if e == nil || e.hash != h || !bytes.Equal(e.raw, raw) {
			continue
		}
		if !e.used.Load() { // a store on each read would move the line between cores
			e.used.Store(true)
		}
		return e
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

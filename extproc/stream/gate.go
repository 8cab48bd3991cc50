package stream

import "sync"

// gate counts who is inside and tells when it is empty. Unlike a WaitGroup it may
// be entered while somebody waits for that. Safe for concurrent use.
type gate struct {
	mu     sync.Mutex
	inside int
	asked  bool
	empty  chan struct{}
}

func newGate() gate { return gate{empty: make(chan struct{})} }

func (g *gate) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.tellLocked()
}

// emptied is closed the first time that nobody is inside after it was asked for.
func (g *gate) emptied() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = true
	g.tellLocked()
	return g.empty
}

func (g *gate) tellLocked() {
	if g.asked && g.inside == 0 && !closed(g.empty) {
		close(g.empty)
	}
}

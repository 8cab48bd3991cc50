package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Paths of the backend that hold requests.
const (
	heldAnswer  = "/held/answer"  // answers when released
	heldSocket  = "/held/socket"  // switches protocols and sends back what comes
	heldCount   = "/held/count"   // how many there are
	heldRelease = "/held/release" // lets the answers go
)

// heldText is the answer of a request that was held.
const heldText = "released\n"

// heldBackend is the backend's part that answers late.
type heldBackend struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	held    int
	release chan struct{} // closed to let go of those that are held now
}

func newHeldBackend() *heldBackend { return &heldBackend{release: make(chan struct{})} }

func (b *heldBackend) register(mux *http.ServeMux) {
	mux.HandleFunc(heldAnswer, b.answer)
	mux.HandleFunc(heldSocket, b.socket)
	mux.HandleFunc(heldCount, func(w http.ResponseWriter, _ *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, _ = fmt.Fprintln(w, b.held) // a client that left does not matter here
	})
	mux.HandleFunc(heldRelease, func(http.ResponseWriter, *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		close(b.release)
		b.release = make(chan struct{})
	})
}

// begin counts a request and tells when it is released.
func (b *heldBackend) begin() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held++
	return b.release
}

func (b *heldBackend) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held--
}

func (b *heldBackend) answer(w http.ResponseWriter, r *http.Request) {
	released := b.begin()
	defer b.end()
	select {
	case <-released:
		_, _ = io.WriteString(w, heldText) // the client counts what it did not get
	case <-r.Context().Done():
	}
}

func (b *heldBackend) socket(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	b.begin()
	defer b.end()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		return
	}
	_, _ = io.Copy(conn, rw) // it ends with the client, who counts what it did not get
}

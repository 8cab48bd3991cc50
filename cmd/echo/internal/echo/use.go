package echo

import (
	"fmt"
	"net/http"
	"runtime"
	"syscall"
	"time"

	"go.uber.org/zap"
)

const (
	defaultMilli = 100
	maxMilli     = 1000 // one request uses one core at most
	defaultMiB   = 16
	maxMiB       = 1024
	// burnPause is between two spells of a burn, short beside what a metrics API averages over.
	burnPause = 5 * time.Millisecond
)

// serveBurn uses ?milli= thousandths of a core for ?for=, and says how much CPU it was. A machine that is too busy to
// give as much makes the answer later, not the use smaller.
func (s *Server) serveBurn(w http.ResponseWriter, r *http.Request) {
	milli, err := bounded(r, "milli", defaultMilli, maxMilli)
	if err != nil {
		badRequest(w, err)
		return
	}
	span, err := duration(r, "for", defaultSlow)
	if err != nil {
		badRequest(w, err)
		return
	}
	// net/http notices a client that leaves only once the body is read.
	if _, err := digestOf(r.Body); err != nil {
		badRequest(w, err)
		return
	}
	_, _ = fmt.Fprintf(w, "burned %s\n", burn(r, milli, span))
}

// burn returns what the thread has used, which falls short only when the client leaves.
func burn(r *http.Request, milli int64, span time.Duration) time.Duration {
	runtime.LockOSThread() // the thread's time is measured
	defer runtime.UnlockOSThread()
	wall, begun := time.Now(), threadTime()
	for {
		passed := min(time.Since(wall), span)
		due := passed * time.Duration(milli) / maxMilli
		for threadTime()-begun < due && r.Context().Err() == nil {
			spin()
		}
		if passed == span || !pause(r.Context(), min(burnPause, span-passed)) {
			return threadTime() - begun
		}
	}
}

// spin computes for some ten microseconds.
func spin() {
	x := uint64(1)
	for range 1 << 14 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	runtime.KeepAlive(x)
}

// serveHold keeps ?mib= MiB of memory in use for ?for=, and gives them back to the system before it answers.
func (s *Server) serveHold(w http.ResponseWriter, r *http.Request) {
	mib, err := bounded(r, "mib", defaultMiB, maxMiB)
	if err != nil {
		badRequest(w, err)
		return
	}
	span, err := duration(r, "for", defaultSlow)
	if err != nil {
		badRequest(w, err)
		return
	}
	if _, err := digestOf(r.Body); err != nil {
		badRequest(w, err)
		return
	}
	if err := hold(r, int(mib)<<20, span); err != nil {
		s.log.Warn("hold memory", zap.Int64("mib", mib), zap.Error(err))
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	_, _ = fmt.Fprintf(w, "held %d MiB\n", mib)
}

// hold bypasses Go's heap, which would give memory back when it likes.
func hold(r *http.Request, size int, span time.Duration) error {
	if size > 0 {
		block, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return fmt.Errorf("map %d bytes: %w", size, err)
		}
		defer func() { _ = syscall.Munmap(block) }() // fails for what is not mapped alone
		for i := 0; i < size; i += 4096 {            // a page is used once it is written
			block[i] = 1
		}
	}
	pause(r.Context(), span)
	return nil
}

// bounded reads a number from 0 to most from the query.
func bounded(r *http.Request, name string, fallback, most int64) (int64, error) {
	n, err := count(r, name, fallback)
	if err == nil && n > most {
		err = fmt.Errorf("query parameter %s=%d is more than %d", name, n, most)
	}
	return n, err
}

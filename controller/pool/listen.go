package pool

import (
	"container/list"
	"sync"
)

// EventKind says what happened to a pod.
type EventKind int

// The kinds of events.
const (
	Added EventKind = iota
	Changed
	Removed
)

// Event is a change of what the View shows of one pod. Old is nil when it was
// added, New is nil when it was removed. Both are shared: read only.
type Event struct {
	Kind     EventKind
	Old, New *Pod
}

// Pod is the pod as it is now, or as it last was.
func (e Event) Pod() *Pod {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// Listen calls f for every pod that is known now (as Added) and for every
// change from then on, one at a time, in order, from a goroutine of the
// listener and without any lock: f may call the View and may take its time.
//
// Nobody waits for f. Events that f has not taken yet are kept, at most one for
// each pod: a newer event of the same pod takes the older one's place at the
// end of the queue, from the older's Old to the newer's New, and a pod that
// came and went in between is left out. So a slow f sees fewer events but
// always ends with the truth, and the queue is bounded by the number of pods.
// Only that a pod was a function's is never left out: who reads the View may
// have told others of the pod meanwhile. Both events are kept then, which adds
// one for each claim of which f has missed the begin and the end.
//
// Cancel ends the listener and waits until f has returned; it must not be
// called from within f. It may be called more than once.
func (v *View) Listen(f func(Event)) (cancel func()) {
	l := &listener{pending: map[string]*list.Element{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	v.mu.Lock()
	for _, e := range v.pods {
		l.push(Event{Kind: Added, New: e.shown})
	}
	v.listeners[l] = struct{}{}
	v.mu.Unlock()
	go l.run(f)
	var once sync.Once
	return func() {
		once.Do(func() {
			v.mu.Lock()
			delete(v.listeners, l)
			v.mu.Unlock()
			close(l.stop)
		})
		<-l.done
	}
}

// emit hands an event to every listener. The caller holds v.mu, so that all
// listeners get all events in one order; no listener's code runs here.
func (v *View) emit(e Event) {
	for l := range v.listeners {
		l.push(e)
	}
}

// listener is a queue of events with at most one for each pod.
type listener struct {
	wake       chan struct{} // 1: a token says that the queue may have something
	stop, done chan struct{}

	mu sync.Mutex
	// The fields below are guarded by mu.
	queue   list.List
	pending map[string]*list.Element // by UID
}

func (l *listener) push(e Event) {
	l.mu.Lock()
	uid := e.Pod().UID
	if before, ok := l.pending[uid]; ok && !hides(before.Value.(Event), e) {
		l.queue.Remove(before)
		delete(l.pending, uid)
		e = merge(before.Value.(Event), e)
	}
	if e.Pod() != nil {
		l.pending[uid] = l.queue.PushBack(e)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// hides says that nobody would learn from the merged event that the pod was a
// function's in between.
func hides(first, second Event) bool {
	between := first.New
	if between == nil || between.Function == nil {
		return false
	}
	before := first.Old != nil && first.Old.Key == between.Key
	after := second.New != nil && second.New.Key == between.Key
	return !before && !after
}

// merge is one event that stands for two of the same pod in a row; one without
// Old and New stands for nothing.
func merge(first, second Event) Event {
	e := Event{Kind: Changed, Old: first.Old, New: second.New}
	switch {
	case e.Old == nil:
		e.Kind = Added
	case e.New == nil:
		e.Kind = Removed
	}
	return e
}

func (l *listener) pop() (Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	front := l.queue.Front()
	if front == nil {
		return Event{}, false
	}
	e := l.queue.Remove(front).(Event)
	if uid := e.Pod().UID; l.pending[uid] == front {
		delete(l.pending, uid)
	}
	return e, true
}

func (l *listener) run(f func(Event)) {
	defer close(l.done)
	for {
		select {
		case <-l.stop:
			return
		case <-l.wake:
		}
		l.drain(f)
	}
}

func (l *listener) drain(f func(Event)) {
	for {
		e, ok := l.pop()
		if !ok {
			return
		}
		select {
		case <-l.stop:
			return
		default:
			f(e)
		}
	}
}

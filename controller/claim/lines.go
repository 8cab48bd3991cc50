package claim

import "container/list"

// lines are the callers that wait for pods of one pool: a line for each tenant,
// first come first served in it, and the tenants take turns. The Claimer's
// mutex guards them.
type lines struct {
	tenants map[string]*list.Element // of turns
	turns   list.List                // of *line, whose turn it is in front
	waiting int
}

// line is the callers of one tenant, by number. It is never empty.
type line struct {
	tenant  string
	tickets list.List // of *ticket
}

// ticket is one caller's place in the line. It keeps its number for all its
// tries, so that a lost race does not send a caller to the end.
type ticket struct {
	tenant string
	number uint64
	tries  int           // grants so far
	grant  chan grant    // 1: room for the one grant that a waiting ticket gets
	place  *list.Element // nil while not waiting
	// obstacle is the limit that kept the ticket from a pod lately; nil: none.
	obstacle error
}

func newLines() lines { return lines{tenants: map[string]*list.Element{}} }

// join puts the ticket where its number belongs in its tenant's line; nearly
// always at the end. A tenant that comes anew has the last turn, but one that
// comes back from a lost race the next.
func (w *lines) join(t *ticket) {
	at, known := w.tenants[t.tenant]
	if !known {
		at = w.newLine(t)
	}
	w.waiting++
	tickets := &at.Value.(*line).tickets
	for e := tickets.Back(); e != nil; e = e.Prev() {
		if e.Value.(*ticket).number < t.number {
			t.place = tickets.InsertAfter(t, e)
			return
		}
	}
	t.place = tickets.PushFront(t)
}

func (w *lines) newLine(t *ticket) *list.Element {
	l := &line{tenant: t.tenant}
	put := w.turns.PushBack
	if t.tries > 0 {
		put = w.turns.PushFront
	}
	at := put(l)
	w.tenants[t.tenant] = at
	return at
}

// leave takes the ticket out, if it is in a line.
func (w *lines) leave(t *ticket) {
	if t.place == nil {
		return
	}
	at := w.tenants[t.tenant]
	l := at.Value.(*line)
	l.tickets.Remove(t.place)
	t.place = nil
	w.waiting--
	if l.tickets.Len() == 0 {
		w.turns.Remove(at)
		delete(w.tenants, t.tenant)
	}
}

// next takes out the first caller, in order of the tenants' turns, whose
// tenant may have a pod; nil if there is none. The tenant's next turn is its
// last. Every tenant that is passed over has the obstacle noted.
func (w *lines) next(may func(*ticket) error) *ticket {
	for at := w.turns.Front(); at != nil; at = at.Next() {
		t := at.Value.(*line).tickets.Front().Value.(*ticket)
		if t.obstacle = may(t); t.obstacle != nil {
			continue
		}
		w.turns.MoveToBack(at)
		w.leave(t)
		return t
	}
	return nil
}

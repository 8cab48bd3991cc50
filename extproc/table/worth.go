package table

import (
	"cmp"
	"time"
)

// worth is what the table would lose by a function's leaving.
type worth struct {
	// instances says that it has some. Requests for functions that do not exist,
	// of which there is no end, never push out those that do.
	instances bool
	// used says that a request came since the last look at the function's use.
	used bool
	// lastUsed is the time of the look that last found it used.
	lastUsed time.Time
}

// compare is negative where w is worth less than o.
func (w worth) compare(o worth) int {
	return cmp.Or(compareBool(w.instances, o.instances), compareBool(w.used, o.used), w.lastUsed.Compare(o.lastUsed))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

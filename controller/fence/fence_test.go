package fence

import (
	"strings"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	self := Owner{UID: "n", Namespace: "prod"}
	base := Question{UID: "n", Namespace: "prod", Addr: "10.0.0.1:80", StartedAt: noon, Owners: []Owner{self}}
	with := func(change func(*Question)) Question {
		q := base
		change(&q)
		return q
	}
	for name, row := range map[string]struct {
		q     Question
		cause string
		says  string
	}{
		"fresh, all known":           {with(func(q *Question) { q.Complete = true }), "", ""},
		"fresh, nobody away":         {base, "", ""},
		"former owner in some table": {with(func(q *Question) { q.Withdrawn = []string{"u"} }), CauseWithdrawn, "pod u"},
		"its own history":            {with(func(q *Question) { q.Withdrawn = []string{"n"} }), "", ""},
		"claimed pod at the address": {with(func(q *Question) { q.Owners = []Owner{{"u", "prod", true}, self} }), CauseOwned, "pod u"},
		"free pod of the namespace":  {with(func(q *Question) { q.Owners = []Owner{{"u", "prod", false}, self} }), "", ""},
		"free pod of another one":    {with(func(q *Question) { q.Owners = []Owner{{"u", "other", false}, self} }), CauseOwned, "namespace other"},
		"started before the absent one was in step": {with(func(q *Question) {
			q.Away, q.LastInStep = "e1", noon.Add(time.Minute)
		}), "", ""},
		"started after that": {with(func(q *Question) {
			q.Away, q.LastInStep = "e1", noon.Add(-time.Minute)
		}), CauseUnknown, "e1"},
		"started so shortly before that clocks may be wrong": {with(func(q *Question) {
			q.Away, q.LastInStep = "e1", noon.Add(time.Second)
		}), CauseUnknown, "e1"},
		"absent one was never in step": {with(func(q *Question) { q.Away = "e1" }), CauseUnknown, "e1"},
		"nobody knows when it started": {with(func(q *Question) {
			q.StartedAt, q.Away, q.LastInStep = time.Time{}, "e1", noon.Add(time.Hour)
		}), CauseUnknown, "e1"},
		"absent one, all known": {with(func(q *Question) { q.Away, q.Complete = "e1", true }), "", ""},
	} {
		d := Decide(row.q)
		if d.Cause != row.cause || d.Allowed != (row.cause == "") || !strings.Contains(d.Reason, row.says) {
			t.Errorf("%s: %+v, want cause %q about %q", name, d, row.cause, row.says)
		}
	}
}

package assign

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/proto/fn"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBackoffDoublesUpToAMinute(t *testing.T) {
	r := NewRefusals(10)
	k := fn.Key{Tenant: "t1"}
	var got []time.Duration
	for range 12 {
		got = append(got, r.Refused(k, "500", noon).RetryAfter)
	}
	s := time.Second
	want := []time.Duration{0, 0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s, 60 * s}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("back-offs (-want +got):\n%s", diff)
	}
}

func TestBackoffStory(t *testing.T) {
	r := NewRefusals(10)
	k, other := fn.Key{Tenant: "t1"}, fn.Key{Tenant: "t2"}
	ms := time.Millisecond
	steps := []struct {
		at     time.Duration
		refuse bool
		accept bool
		want   Verdict // of Begin
	}{
		{at: 0, want: Verdict{Allowed: true}},
		{at: 0, refuse: true, want: Verdict{Allowed: true, InRow: 1, Reason: "500"}},
		{at: 0, refuse: true, want: Verdict{Allowed: true, InRow: 2, Reason: "500"}},
		{at: 0, refuse: true, want: Verdict{RetryAfter: time.Second, InRow: 3, Reason: "500"}},
		{at: 999 * ms, want: Verdict{RetryAfter: ms, InRow: 3, Reason: "500"}},
		{at: 1000 * ms, want: Verdict{Allowed: true, InRow: 3, Reason: "500"}},        // the one probe
		{at: 1100 * ms, want: Verdict{RetryAfter: 900 * ms, InRow: 3, Reason: "500"}}, // no second one
		{at: 1200 * ms, refuse: true, want: Verdict{RetryAfter: 2 * time.Second, InRow: 4, Reason: "500"}},
		{at: 3200 * ms, want: Verdict{Allowed: true, InRow: 4, Reason: "500"}},
		{at: 3300 * ms, accept: true, want: Verdict{Allowed: true}},
	}
	for i, s := range steps {
		now := noon.Add(s.at)
		if s.refuse {
			r.Refused(k, "500", now)
		}
		if s.accept {
			r.Accepted(k)
		}
		if diff := cmp.Diff(s.want, r.Begin(k, now)); diff != "" {
			t.Errorf("step %d at %s (-want +got):\n%s", i, s.at, diff)
		}
		if v := r.Begin(other, now); !v.Allowed {
			t.Errorf("step %d: another tenant is held up", i)
		}
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	r := NewRefusals(3)
	for i := range 10 {
		for range refusalsInRow {
			r.Refused(fn.Key{Tenant: fmt.Sprint(i)}, "500", noon)
		}
	}
	if n := r.functions.Len(); n != 3 {
		t.Errorf("%d functions are remembered, want 3", n)
	}
	if v := r.Begin(fn.Key{Tenant: "9"}, noon); v.Allowed {
		t.Error("the latest was forgotten")
	}
}

package table

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sign is something that happens to a pod; the zero kind is a failure.
type sign struct {
	at     int // seconds
	served int // a request is served that was sent at that second; 0 is none
}

func TestQuarantineBeginsWithTheSecondSign(t *testing.T) {
	tests := []struct {
		name  string
		signs []sign
		from  []int // seconds at which the pod is asked after
		want  []bool
	}{
		{"nothing", nil, []int{1}, []bool{false}},
		{"one failure", []sign{{at: 1}}, []int{1, 5}, []bool{false, false}},
		{"two failures", []sign{{at: 1}, {at: 11}}, []int{11, 20, 21}, []bool{true, true, false}},
		{"two failures far apart", []sign{{at: 1}, {at: 12}}, []int{12}, []bool{false}},
		{"a third failure prolongs it", []sign{{at: 1}, {at: 2}, {at: 9}}, []int{18, 19}, []bool{true, false}},
		{"a later request is served between", []sign{{at: 1}, {at: 3, served: 2}, {at: 4}}, []int{4}, []bool{false}},
		{"an earlier request is served between", []sign{{at: 5}, {at: 6, served: 4}, {at: 7}}, []int{7}, []bool{true}},
		{"a request is served during it", []sign{{at: 1}, {at: 2}, {at: 4, served: 3}}, []int{4}, []bool{false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := newInstance(pod(1, 1), &counter{})
			for _, s := range tt.signs {
				if s.served > 0 {
					i.Serve(time.Unix(int64(s.served), 0))
				} else {
					i.Fail(time.Unix(int64(s.at), 0), 10*time.Second)
				}
			}
			var got []bool
			for _, at := range tt.from {
				got = append(got, i.Quarantined(time.Unix(int64(at), 0)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("quarantined (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuarantineIsToldOnce(t *testing.T) {
	i := newInstance(pod(1, 1), &counter{})
	var got []bool
	for at := range 4 {
		got = append(got, i.Fail(time.Unix(int64(at), 0), 10*time.Second))
	}
	if diff := cmp.Diff([]bool{false, true, false, false}, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestFailuresAreReportedOnce(t *testing.T) {
	table, _ := newTable(time.Now())
	h := function("t")
	f := table.Function(h)
	table.Push(list(h, 5, pod(1, 5), pod(2, 5)), time.Now())
	one := f.View().Instances[0]
	one.Fail(time.Now(), time.Second)
	one.Fail(time.Now(), time.Second)
	table.Push(list(h, 6), time.Now()) // it is named though it is gone
	want := map[string]uint32{one.UID: 2}
	got := table.Usage(time.Now())[0].Failures
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if u := table.Usage(time.Now())[0]; u.Failures != nil {
		t.Errorf("reported twice: %v", u.Failures)
	}
	table.Restore(h.Spec, got)
	table.Restore(function("unknown").Spec, got)
	if diff := cmp.Diff(want, table.Usage(time.Now())[0].Failures); diff != "" {
		t.Errorf("failures that were not delivered (-want +got):\n%s", diff)
	}
}

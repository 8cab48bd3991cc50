package view

import "testing"

func TestHowManyNamesTheSteps(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		d       Decision
		oneshot bool
		want    string
	}{
		{"what the metrics ask for", Decision{Desired: 2, Recommended: 2, Unclamped: 2}, false, "2 (the metrics ask for 2)"},
		{"above the maximum", Decision{Desired: 4, Recommended: 4, Unclamped: 10}, false, "4 (the metrics ask for 10; the bounds make it 4)"},
		{"below the minimum", Decision{Desired: 3, Recommended: 3, Unclamped: 1}, false, "3 (the metrics ask for 1; the bounds make it 3)"},
		{"stabilised", Decision{Desired: 6, Recommended: 2, Unclamped: 2}, false, "6 (the metrics ask for 2; held at 6 for now)"},
		{"all three", Decision{Desired: 6, Recommended: 4, Unclamped: 9}, false, "6 (the metrics ask for 9; the bounds make it 4; held at 6 for now)"},
		{"unused", Decision{}, false, "0 (not used, so 0)"},
		{"unused, the controller has just started", Decision{Desired: 3}, false, "3 (not used, so 0; held at 3 for now)"},
		{"oneshot", Decision{Desired: 7, Recommended: 7, Unclamped: 7}, true, "7 (oneshot: one per request)"},
	} {
		f := Function{Oneshot: row.oneshot, Decision: &row.d}
		if got := f.howMany(); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

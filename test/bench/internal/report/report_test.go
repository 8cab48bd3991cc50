package report

import (
	"testing"
	"time"
)

func TestSpreadOf(t *testing.T) {
	for _, row := range []struct {
		in   []float64
		want string
	}{
		{nil, "0.0 / 0.0 / 0.0"},
		{[]float64{3}, "3.0 / 3.0 / 3.0"},
		{[]float64{3, 1, 2}, "1.0 / 2.0 / 3.0"},
		{[]float64{4, 3, 2, 1}, "1.0 / 2.0 / 4.0"},
	} {
		if got := SpreadOf(row.in).Format(1); got != row.want {
			t.Errorf("SpreadOf(%v) = %s, want %s", row.in, got, row.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	in := []time.Duration{5, 1, 4, 2, 3}
	for p, want := range map[float64]time.Duration{0: 1, 0.2: 1, 0.5: 3, 0.95: 5, 1: 5} {
		if got := Percentile(in, p); got != want {
			t.Errorf("Percentile(%v) = %v, want %v", p, got, want)
		}
	}
	if got := Percentile(nil, 0.5); got != 0 {
		t.Errorf("Percentile of none = %v", got)
	}
}

func TestMarkdown(t *testing.T) {
	tab := Table{Header: []string{"a", "b"}}
	tab.Add("1", "2")
	if got, want := tab.Markdown(), "| a | b |\n| --- | --- |\n| 1 | 2 |\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

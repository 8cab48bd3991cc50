// Package report turns samples into the tables of docs/benchmarks.md.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Spread is the smallest, the middle and the largest of several readings.
type Spread struct{ Min, Median, Max float64 }

// SpreadOf returns the spread of samples, which it leaves as they are; that of
// none is zero. Of an even number of samples the median is the lower middle.
func SpreadOf(samples []float64) Spread {
	if len(samples) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(samples))
	return Spread{s[0], s[(len(s)-1)/2], s[len(s)-1]}
}

// Format writes the three figures with the given number of decimals, "min / median / max".
func (s Spread) Format(decimals int) string {
	return fmt.Sprintf("%.*f / %.*f / %.*f", decimals, s.Min, decimals, s.Median, decimals, s.Max)
}

// Percentile is the smallest sample that at least p (0 to 1) of all samples do
// not exceed (nearest rank); 0 of none.
func Percentile(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[max(0, int(math.Ceil(p*float64(len(s))))-1)]
}

// Millis writes a duration as milliseconds with two decimals.
func Millis(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// Table is rows below a header, written as Markdown.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add appends a row, which should have as many cells as the header.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Markdown writes the table.
func (t *Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Header)
	line(slices.Repeat([]string{"---"}, len(t.Header)))
	for _, r := range t.Rows {
		line(r)
	}
	return b.String()
}

package scale

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	skipperpb "skipper/proto"
)

// example is one row of docs/scaling.md.
type example struct {
	name           string
	policy         Policy
	in             Input
	wants, desired int
	reason         skipperpb.ScaleReason
}

// holds runs the example.
func (e example) holds(decide decider) error {
	got := decide(e.policy, e.in, now)
	if got.Desired != e.desired || got.Unclamped != e.wants || got.Reason != e.reason {
		return fmt.Errorf("%s: %+v, want %d (unclamped %d) by %s", e.name, got, e.desired, e.wants, e.reason)
	}
	if got.Why == "" {
		return fmt.Errorf("%s: no reason in words", e.name)
	}
	return nil
}

func TestDocumentedExamples(t *testing.T) {
	rows := examples(t)
	if len(rows) < 25 {
		t.Fatalf("%d examples read from the document, want all of them", len(rows))
	}
	for _, e := range rows {
		if err := e.holds(Decide); err != nil {
			t.Error(err)
		}
	}
}

// examples reads the table of the document.
func examples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []example
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 12 || strings.Contains(line, "---") || strings.HasPrefix(line, "| example") {
			continue
		}
		e, err := parseExample(cells)
		if err != nil {
			t.Fatalf("%s: %v", strings.TrimSpace(cells[0]), err)
		}
		out = append(out, e)
	}
	return out
}

// cells reads what a row says and collects what is wrong with it.
type cells struct{ errs []error }

func parseExample(row []string) (example, error) {
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	var c cells
	lo, hi, _ := strings.Cut(row[1], "..")
	e := example{name: row[0], policy: old(), wants: c.number(row[9]), desired: c.number(row[10])}
	e.policy.StartedAt = ago(c.duration(row[8]))
	e.in = Input{
		Scale:   &skipperpb.Scale{MinInstances: uint32(c.number(lo)), MaxInstances: uint32(c.number(hi))},
		Current: c.number(row[2]), LastUsed: ago(c.duration(row[6])), WindowMax: c.number(row[7]), Metered: true,
	}
	e.in.Samples = make([]Sample, e.in.Current)
	inFlight, target := c.metric(row[3])
	e.in.InFlight, e.in.Scale.TargetInFlightRequests = uint64(c.number(inFlight)), target
	cpu, target := c.metric(row[4])
	e.in.Scale.TargetCpuUsageMilli = target
	c.samples(e.in.Samples, cpu, func(s *Sample, v uint32) { s.CPUMilli = v })
	memory, target := c.metric(row[5])
	e.in.Scale.TargetMemoryUsageMib = target
	c.samples(e.in.Samples, memory, func(s *Sample, v uint32) { s.MemoryMiB = v })
	reason, ok := skipperpb.ScaleReason_value["SCALE_REASON_"+row[11]]
	if !ok {
		c.errs = append(c.errs, fmt.Errorf("no reason %q", row[11]))
	}
	e.reason = skipperpb.ScaleReason(reason)
	return e, errors.Join(c.errs...)
}

func (c *cells) number(text string) int {
	n, err := strconv.Atoi(text)
	c.errs = append(c.errs, err)
	return n
}

func (c *cells) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	c.errs = append(c.errs, err)
	return d
}

// metric is "values / target", or "-".
func (c *cells) metric(text string) (values string, target uint32) {
	if text == "-" {
		return "0", 0
	}
	values, after, _ := strings.Cut(text, " / ")
	return values, uint32(c.number(after))
}

func (c *cells) samples(into []Sample, text string, set func(*Sample, uint32)) {
	words := strings.Fields(text)
	if text == "0" {
		return
	}
	if len(words) != len(into) {
		c.errs = append(c.errs, fmt.Errorf("%q is not one number for each of %d instances", text, len(into)))
		return
	}
	for i, word := range words {
		value, young := strings.CutPrefix(word, "(")
		s := &into[i]
		s.ReadyAt, s.Measured = ago(time.Hour), word != "?"
		if young {
			s.ReadyAt = ago(29 * time.Second)
		}
		if s.Measured {
			set(s, uint32(c.number(strings.TrimSuffix(value, ")"))))
		}
	}
}

package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Tone is what a cell says at a glance; shown as a colour where there are any.
type Tone int

// The tones. Plain is the zero value.
const (
	Plain Tone = iota
	Good
	Warn
	Bad
	Strong
)

// Codes that begin and end a tone. All of one kind have the same length, so
// that columns stay in line although the aligner counts them.
var tones = [...]string{Plain: "\x1b[39m", Good: "\x1b[32m", Warn: "\x1b[33m", Bad: "\x1b[31m", Strong: "\x1b[01m"}

const toneEnd = "\x1b[00m"

// Cell is one field of a Grid.
type Cell struct {
	Text string
	Tone Tone
}

// Text makes a plain cell of any value; nil and "" give an empty one.
func Text(v any) Cell {
	if v == nil {
		return Cell{}
	}
	return Cell{Text: fmt.Sprint(v)}
}

// Toned makes a cell with a tone.
func Toned(text string, t Tone) Cell { return Cell{text, t} }

// Grid is rows under column names.
type Grid struct {
	Columns []string
	Rows    [][]Cell
	// Empty is said instead where there are no rows.
	Empty string
}

// Add appends a row.
func (g *Grid) Add(cells ...Cell) { g.Rows = append(g.Rows, cells) }

// Sheet describes one thing: pairs of name and value, then lists.
type Sheet struct {
	Pairs []Pair
	Lists []List
}

// Pair is one line of a Sheet.
type Pair struct {
	Name  string
	Value Cell
}

// List is a grid with a heading; it is left out where the grid has no rows.
type List struct {
	Title string
	Grid  Grid
}

// Add appends a pair unless the value is empty.
func (s *Sheet) Add(name string, value Cell) {
	if value.Text != "" {
		s.Pairs = append(s.Pairs, Pair{name, value})
	}
}

const (
	columnGap = 3
	// none stands in a cell that has nothing to say.
	none = "-"
)

func (g Grid) write(w io.Writer, colour bool) error {
	if len(g.Rows) == 0 {
		_, err := fmt.Fprintln(w, g.Empty)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	head := make([]Cell, len(g.Columns))
	for i, c := range g.Columns {
		head[i] = Cell{c, Strong}
	}
	writeRow(t, head, colour)
	for _, r := range g.Rows {
		writeRow(t, r, colour)
	}
	return t.Flush()
}

// writeRow leaves errors to Flush, which has them too.
func writeRow(w io.Writer, cells []Cell, colour bool) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = paint(c, colour); c.Text == "" {
			texts[i] = paint(Cell{none, c.Tone}, colour)
		}
	}
	_, _ = fmt.Fprintln(w, strings.Join(texts, "\t"))
}

func (s Sheet) write(w io.Writer, colour bool) error {
	t := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	for _, p := range s.Pairs {
		writeRow(t, []Cell{{p.Name + ":", Strong}, p.Value}, colour)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range s.Lists {
		if len(l.Grid.Rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", paint(Cell{l.Title, Strong}, colour)); err != nil {
			return err
		}
		if err := l.Grid.write(w, colour); err != nil {
			return err
		}
	}
	return nil
}

func paint(c Cell, colour bool) string {
	text := Clean(c.Text)
	if !colour {
		return text
	}
	return tones[c.Tone] + text + toneEnd
}

// Clean makes a text fit for one line of a terminal: control characters, and
// those that turn the direction of writing, become escapes; bytes that are no
// UTF-8 become U+FFFD.
func Clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == '\u2028', r == '\u2029':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

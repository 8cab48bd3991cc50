package output

import (
	"fmt"
	"io"
)

// Notes are paragraphs, for what is too long for a row.
type Notes struct {
	All []Note
	// Last is a line of its own at the end; empty: there is none.
	Last Cell
}

// Note has a mark, a title, and lines below it.
type Note struct {
	Mark  Cell
	Title string
	Lines []Pair
}

func (n Notes) write(w io.Writer, colour bool) error {
	for i, note := range n.All {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s  %s\n", paint(note.Mark, colour), Clean(note.Title)); err != nil {
			return err
		}
		for _, l := range note.Lines {
			if _, err := fmt.Fprintf(w, "  %s: %s\n", paint(Cell{l.Name, Strong}, colour), paint(l.Value, colour)); err != nil {
				return err
			}
		}
	}
	if n.Last.Text == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, paint(n.Last, colour))
	return err
}

package output

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Printer writes results to Out. Not safe for concurrent use.
type Printer struct {
	Out    io.Writer
	Format Format
	// Colour says that tones are shown; only tables have any.
	Colour bool
}

// Colours tells whether out is a terminal that wants colours: NO_COLOR is not
// set, and TERM is not dumb.
func Colours(out io.Writer, getenv func(string) string) bool {
	f, ok := out.(*os.File)
	return ok && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// forPeople is a Grid or a Sheet.
type forPeople interface {
	write(w io.Writer, colour bool) error
}

// Print writes value for programs, or what is made of it for people.
func (p Printer) Print(value any, people forPeople) error {
	var err error
	switch p.Format {
	case JSON:
		err = p.json(value)
	case YAML:
		err = p.yaml(value)
	default:
		err = people.write(p.Out, p.Colour)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (p Printer) json(value any) error {
	e := json.NewEncoder(p.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// Line prints one value of a stream: a line of JSON, a YAML document, or a row
// of the grid without its head.
func (p Printer) Line(value any, row []Cell) error {
	var err error
	switch p.Format {
	case JSON:
		err = json.NewEncoder(p.Out).Encode(value)
	case YAML:
		if _, err = io.WriteString(p.Out, "---\n"); err == nil {
			err = p.yaml(value)
		}
	default:
		for i, c := range row {
			if err == nil && i > 0 {
				_, err = io.WriteString(p.Out, "  ")
			}
			if err == nil {
				_, err = io.WriteString(p.Out, paint(c, p.Colour))
			}
		}
		if err == nil {
			_, err = io.WriteString(p.Out, "\n")
		}
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (p Printer) yaml(value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	_, err = p.Out.Write(text)
	return err
}

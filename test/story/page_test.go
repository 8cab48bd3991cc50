package story

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pageFile = "../../docs/story.md"

// step is a command with what it printed, or a picture of a web page.
type step struct {
	// command as a shell takes it; empty: a picture.
	command string
	// until is what the output, or the page, must show before the story goes on;
	// nil: nothing.
	until *regexp.Regexp
	// mayFail says that the command may end with another status than 0: it
	// tells of trouble by it.
	mayFail bool
	// output is what is on the page, lines begin to end.
	output     []string
	begin, end int
	// picture is the file, relative to the page; address what it shows, behind
	// the controller's.
	picture, address string
}

var (
	mark      = regexp.MustCompile(`^<!-- (recorded|picture)((?: [a-z]+="[^"]*")*) -->$`)
	attribute = regexp.MustCompile(`([a-z]+)="([^"]*)"`)
	image     = regexp.MustCompile(`^!\[[^\]]+\]\(([^)]+)\)$`)
)

// parse finds the steps of a page in their order. An error names the line and
// what should be there.
func parse(lines []string) ([]step, error) {
	var steps []step
	for i := 0; i < len(lines); i++ {
		m := mark.FindStringSubmatch(lines[i])
		if m == nil {
			if strings.HasPrefix(lines[i], "<!--") {
				return nil, fmt.Errorf("line %d: %q is no mark: write <!-- recorded until=\"...\" --> or <!-- picture of=\"...\" -->", i+1, lines[i])
			}
			continue
		}
		s, err := attributes(m[2])
		if err == nil && m[1] == "picture" {
			err = s.takeImage(lines, i+1)
		} else if err == nil {
			err = s.takeBlock(lines, i+1)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		steps, i = append(steps, s), max(i, s.end)
	}
	return steps, nil
}

func attributes(text string) (s step, err error) {
	for _, m := range attribute.FindAllStringSubmatch(text, -1) {
		switch m[1] {
		case "until":
			if s.until, err = regexp.Compile(m[2]); err != nil {
				return s, fmt.Errorf("until: %w", err)
			}
		case "status":
			s.mayFail = m[2] == "any"
		case "of":
			s.address = m[2]
		default:
			return s, fmt.Errorf("attribute %s is not known: use until, status or of", m[1])
		}
	}
	return s, nil
}

func (s *step) takeImage(lines []string, i int) error {
	if i < len(lines) {
		if m := image.FindStringSubmatch(lines[i]); m != nil && s.address != "" {
			s.picture = m[1]
			return nil
		}
	}
	return fmt.Errorf("a picture needs of=\"#/...\" in its mark, and ![what it shows](FILE) below it")
}

func (s *step) takeBlock(lines []string, i int) error {
	if i+1 >= len(lines) || !strings.HasPrefix(lines[i], "```") || !strings.HasPrefix(lines[i+1], "$ ") {
		return fmt.Errorf("a block is missing below the mark, with \"$ COMMAND\" as its first line")
	}
	command := []string{strings.TrimPrefix(lines[i+1], "$ ")}
	for i += 2; i < len(lines) && strings.HasSuffix(command[len(command)-1], `\`); i++ {
		command = append(command, lines[i])
	}
	length := slices.Index(lines[i:], "```")
	if length < 0 {
		return fmt.Errorf("the block has no end")
	}
	s.command, s.begin, s.end = strings.Join(command, "\n"), i, i+length
	s.output = lines[s.begin:s.end]
	return nil
}

// rewrite puts outputs, one for each step, into the page.
func rewrite(lines []string, steps []step, outputs [][]string) []string {
	out := slices.Clone(lines)
	for i, s := range slices.Backward(steps) {
		if s.command != "" {
			out = slices.Replace(out, s.begin, s.end, outputs[i]...)
		}
	}
	return out
}

// printed are an output's lines without what nobody sees.
func printed(output string) []string {
	var out []string
	for line := range strings.Lines(output) {
		out = append(out, strings.TrimRight(line, " \r\n"))
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

var (
	header = regexp.MustCompile(`^[A-Z]+(?: [A-Z]+)*(?: {2,}[A-Z]+(?: [A-Z]+)*)+$`)
	label  = regexp.MustCompile(`^[A-Z][A-Za-z]*(?: [a-z]+)*:(?: |$)`)
	gap    = regexp.MustCompile(` {2,}`)
)

// shape is what stays the same from one evening to the next: the columns of
// tables, and the labels of sheets.
func shape(output []string) []string {
	var out []string
	for _, line := range output {
		if header.MatchString(line) {
			out = append(out, gap.ReplaceAllString(line, " | "))
		} else if l := label.FindString(line); l != "" {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

// lost are the parts of the shape that an output has no more. It may have more of
// them: more is known of a function the longer it lives.
func lost(before, now []string) []string {
	have := shape(now)
	return slices.DeleteFunc(shape(before), func(part string) bool { return slices.Contains(have, part) })
}

func readPage(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

// TestPageIsWhole: the story has its chapters, each command has printed something,
// and the pictures are there and small.
func TestPageIsWhole(t *testing.T) {
	steps, err := parse(readPage(t))
	if err != nil {
		t.Fatal(err)
	}
	all, pictures := "", 0
	for _, s := range steps {
		all += s.command + "\n"
		if s.command != "" && len(s.output) == 0 {
			t.Errorf("line %d: %s has printed nothing: record it", s.begin, s.command)
		}
		if s.picture == "" {
			continue
		}
		pictures++
		if info, err := os.Stat(filepath.Join(filepath.Dir(pageFile), s.picture)); err != nil || info.Size() < 5_000 || info.Size() > mostBytes {
			t.Errorf("picture %s: %v, %v, want 5 to %d kB", s.picture, info, err, mostBytes/1000)
		}
	}
	for _, verb := range []string{"doctor", "functions", "invoke", "describe", "events", "pools", "drain", "keys"} {
		if !strings.Contains(all, "skipper "+verb) {
			t.Errorf("the story has no skipper %s", verb)
		}
	}
	if pictures < 2 {
		t.Errorf("the story has %d pictures, want 2", pictures)
	}
}

// mostBytes is how large a picture may be.
const mostBytes = 200_000

const sample = `# A page
<!-- recorded until="1/1" status="any" -->
` + "```console" + `
$ skipper functions \
    --tenant me
FUNCTION   READY
old        1/1
` + "```" + `
Between.
<!-- picture of="#/" until="me" -->
![What it shows](img/a.png)

<!-- recorded -->
` + "```" + `
$ true
` + "```"

func TestParse(t *testing.T) {
	lines := strings.Split(sample, "\n")
	steps, err := parse(lines)
	if err != nil || len(steps) != 3 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	first, second := steps[0], steps[1]
	if first.command != "skipper functions \\\n    --tenant me" || !first.mayFail || first.until.String() != "1/1" || len(first.output) != 2 {
		t.Errorf("the command is %+v", first)
	}
	if second.picture != "img/a.png" || second.address != "#/" || second.command != "" {
		t.Errorf("the picture is %+v", second)
	}
}

func TestRewriteChangesOutputsOnly(t *testing.T) {
	lines := strings.Split(sample, "\n")
	steps, err := parse(lines)
	if err != nil {
		t.Fatal(err)
	}
	same := rewrite(lines, steps, [][]string{steps[0].output, nil, nil})
	if d := cmp.Diff(lines, same); d != "" {
		t.Errorf("rewriting what is there (-before +after):\n%s", d)
	}
	text := strings.Join(rewrite(lines, steps, [][]string{{"new", "new 2", "new 3"}, nil, {"last"}}), "\n")
	if strings.Contains(text, "old") || !strings.Contains(text, "    --tenant me\nnew\nnew 2\nnew 3\n```\nBetween.") || !strings.HasSuffix(text, "$ true\nlast\n```") {
		t.Errorf("rewritten:\n%s", text)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	for name, text := range map[string]string{
		"no block":         "<!-- recorded -->\ntext",
		"at the end":       "<!-- recorded -->",
		"no command":       "<!-- recorded -->\n```\ntrue\n```",
		"no end":           "<!-- recorded -->\n```\n$ true",
		"unknown":          "<!-- recorded when=\"now\" -->\n```\n$ true\n```",
		"bad pattern":      "<!-- recorded until=\"(\" -->\n```\n$ true\n```",
		"no image":         "<!-- picture of=\"#/\" -->\ntext",
		"of nothing":       "<!-- picture -->\n![a](b.png)",
		"misspelt":         "<!-- record -->\n```\n$ true\n```",
		"a command's line": "<!-- recorded -->\n```\n$ true \\",
	} {
		if steps, err := parse(strings.Split(text, "\n")); err == nil || !strings.HasPrefix(err.Error(), "line 1: ") {
			t.Errorf("%s: %+v, %v", name, steps, err)
		}
	}
}

func TestShape(t *testing.T) {
	for _, row := range []struct {
		name, output string
		want         []string
	}{
		{"a table", "FUNCTION    READY   IN FLIGHT   HEARD\nprod/a/b    1/1     0           2s", []string{"FUNCTION | READY | IN FLIGHT | HEARD"}},
		{"a sheet and a table", "Function:   prod/a/b\nIn flight:  0\n\nInstances\nNAME   STATE\na      ready\n", []string{"Function:", "In flight:", "NAME | STATE"}},
		{"neither", "no functions in use\n{\"Body\":1}\n5 200\n", nil},
		{"findings", "warning  pool: something\n  why: it is\n", nil},
	} {
		if d := cmp.Diff(row.want, shape(printed(row.output))); d != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, d)
		}
	}
	if got := lost([]string{"A   B", "C   D", "Name: x"}, []string{"Name: y", "Other: z", "C   D"}); !slices.Equal(got, []string{"A | B"}) {
		t.Errorf("lost %q, want the columns A and B", got)
	}
}

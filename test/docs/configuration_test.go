package docs_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"skipper/controller/config"
)

const configurationPage = "../../docs/configuration.md"

// option is one flag as a program's help shows it.
type option struct {
	name, kind, preset, meaning string
}

// The page's tables are made from the controller's flags, and from the help
// texts to which the tests of the other programs hold theirs.
func TestFlagsAreDocumented(t *testing.T) {
	controller := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	controller.SortFlags = false
	config.Default().AddFlags(controller)
	for _, p := range []struct{ part, help, prefix string }{
		{"controller", controller.FlagUsages(), "SKIPPER_"},
		{"extproc", read(t, "../../cmd/extproc/testdata/help.txt"), "SKIPPER_"},
		{"echo", read(t, "../../cmd/echo/testdata/help.txt"), "SKIPPER_ECHO_"},
	} {
		pin(t, configurationPage, p.part, table(options(t, p.help), p.prefix))
	}
}

// What several commands of skipper have stands in one table, and what one
// command has alone in one for it.
func TestCommandFlagsAreDocumented(t *testing.T) {
	const folder = "../../cmd/skipper/testdata/"
	shared := options(t, read(t, folder+"functions.help"))
	shared = slices.DeleteFunc(shared, func(o option) bool {
		return slices.Contains([]string{"namespace", "deployment", "tenant"}, o.name)
	})
	files, err := filepath.Glob(folder + "*.help")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d help texts found: %v", len(files), err)
	}
	var commands strings.Builder
	for _, file := range files {
		text := read(t, file)
		name := regexp.MustCompile(`(?m)^  (skipper .*?)(?: \[flags\])?$`).FindStringSubmatch(text)
		if strings.Contains(text, "Use \"") || name == nil { // a group of commands
			continue
		}
		own := slices.DeleteFunc(options(t, text), func(o option) bool { return slices.Contains(shared, o) })
		if len(own) > 0 {
			fmt.Fprintf(&commands, "`%s`\n\n%s\n", name[1], table(own, "SKIPPER_"))
		}
	}
	pin(t, configurationPage, "skipper", table(shared, "SKIPPER_"))
	pin(t, configurationPage, "commands", strings.TrimSuffix(commands.String(), "\n"))
}

var flagLine = regexp.MustCompile(`^ +(?:-\w, )?--([a-z-]+)(\[=true\|false\])?(?: (\S+))?  +(.*?)(?: \(default ("[^"]*"|\[[^\]]*\]|[^ )]+)\))?$`)

// options are the flags of a help text, without help itself.
func options(t *testing.T, help string) []option {
	t.Helper()
	var all []option
	if _, flags, found := strings.Cut(help, "Flags:\n"); found {
		help = flags
	}
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if !strings.Contains(line, " --") || !strings.HasPrefix(strings.TrimSpace(line), "-") {
			continue
		}
		m := flagLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("help has a line that is not understood: %s", line)
		}
		o := option{name: m[1], kind: m[3], meaning: m[4], preset: strings.Trim(m[5], `"`)}
		if m[2] != "" {
			o.kind = "true, false"
		}
		if o.name != "help" {
			all = append(all, o)
		}
	}
	return all
}

// table is one row for each flag.
func table(all []option, prefix string) string {
	var out strings.Builder
	out.WriteString("| flag | variable | value | default | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, o := range all {
		preset := ""
		if o.preset != "" {
			preset = "`" + cell(o.preset) + "`"
		}
		variable := prefix + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
		fmt.Fprintf(&out, "| `--%s` | `%s` | %s | %s | %s |\n", o.name, variable, cell(o.kind), preset, cell(o.meaning))
	}
	return out.String()
}

// The reading of help texts is checked on lines of every form.
func TestOptionsAreRead(t *testing.T) {
	got := options(t, `Flags:
      --plain time                  how long (default 1m30s)
  -o, --output format               form: json | yaml (default table)
      --on[=true|false]             switch (default true)
      --listen address              where it listens (default ":8080")
      --upgrades strings            what is let through (default [websocket,CONNECT])
      --router-ip IP                IP of this pod (default: POD_IP)
      --none                        nothing
  -h, --help[=true|false]           help for it
`)
	want := []option{
		{"plain", "time", "1m30s", "how long"},
		{"output", "format", "table", "form: json | yaml"},
		{"on", "true, false", "true", "switch"},
		{"listen", "address", ":8080", "where it listens"},
		{"upgrades", "strings", "[websocket,CONNECT]", "what is let through"},
		{"router-ip", "IP", "", "IP of this pod (default: POD_IP)"},
		{"none", "", "", "nothing"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(option{})); d != "" {
		t.Errorf("flags (-want +got):\n%s", d)
	}
}

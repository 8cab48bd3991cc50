// Command licences writes the list of modules that Skipper's programs contain, and the licence of
// each. It fails where it knows none, or one that does not go with a program that is passed on.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

const header = `# Licences

What the programs in ` + "`cmd`" + ` contain, beside the standard library of Go (BSD-3-Clause). Made by ` + "`make licences`" + `; ` + "`make check`" + ` compares.

| module | version | licence |
| --- | --- | --- |
`

// allowed may be passed on in a program with a note of the licence.
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "0BSD", "Zlib"}
}

func main() {
	root, check := flag.String("root", ".", "folder of the project"), flag.Bool("check", false, "compare instead of writing")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	modules, err := list(root)
	if err != nil {
		return err
	}
	page, err := table(modules)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "licences.md")
	if !check {
		return os.WriteFile(file, page, 0o644)
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(old, page) {
		return errors.New("docs/licences.md is not what the programs contain: run make licences")
	}
	return nil
}

// module is one that a program contains; Dir is where its files are.
type module struct{ Path, Version, Dir string }

func list(root string) ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}", "./cmd/...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	var modules []module
	for _, line := range slices.Compact(lines) {
		if f := strings.Fields(line); len(f) == 3 {
			modules = append(modules, module{f[0], f[1], f[2]})
		}
	}
	if len(modules) == 0 {
		return nil, errors.New("list modules: there are none")
	}
	return modules, nil
}

func table(modules []module) ([]byte, error) {
	page := bytes.NewBufferString(header)
	var errs []error
	for _, m := range modules {
		ids, err := identify(os.DirFS(m.Dir))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Path, err))
			continue
		}
		fmt.Fprintf(page, "| %s | %s | %s |\n", m.Path, m.Version, strings.Join(ids, ", "))
	}
	return page.Bytes(), errors.Join(errs...)
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)

// covered is the share of a file, in per cent, that must be known text.
const covered = 75

// identify names the licences in a module's top folder.
func identify(dir fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			return nil, err
		}
		found := licensecheck.Scan(text)
		if found.Percent < covered {
			return nil, fmt.Errorf("%.0f %% of %s is a licence that is known: look at it", found.Percent, e.Name())
		}
		for _, m := range found.Match {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return nil, errors.New("it has no file with a licence")
	}
	for _, id := range ids {
		if !slices.Contains(allowed(), id) {
			return nil, fmt.Errorf("its licence %s is not among those that are allowed", id)
		}
	}
	return ids, nil
}

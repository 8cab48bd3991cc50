// Package sbom lists what a Go program is made of, as CycloneDX JSON, from what the compiler
// recorded in it. Equal programs give equal lists: there is no time and no serial number in them.
package sbom

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
)

// Of returns the list of the program in a file.
func Of(program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read what %s is made of: %w", program, err)
	}
	text, err := json.MarshalIndent(list(info), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode what %s is made of: %w", program, err)
	}
	return append(text, '\n'), nil
}

// bom is the part of CycloneDX 1.6 that is used.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func list(info *debug.BuildInfo) bom {
	main := library(&debug.Module{Path: info.Path, Version: info.Main.Version})
	main.Type, main.Name = "application", path.Base(info.Path)
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{main}}
	b.Components = append(b.Components, library(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, library(m))
	}
	return b
}

func library(m *debug.Module) component {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: purl(m)}
	c.Ref = c.PURL
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}

// purl is the package URL of a module: in lower case, and the plus of a version escaped.
func purl(m *debug.Module) string {
	p := "pkg:golang/" + strings.ToLower(m.Path)
	if m.Version == "" || m.Version == "(devel)" {
		return p
	}
	return p + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
}

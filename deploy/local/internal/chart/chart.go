// Package chart renders Skipper's Helm chart as `helm template` does, without a cluster.
package chart

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Helm's annotations. An object with hookAnnotation is applied before the others, those of lower weight first.
const (
	hookAnnotation   = "helm.sh/hook"
	weightAnnotation = "helm.sh/hook-weight"
)

// Object is one rendered object. Text is its YAML with the comments of the template. Hook says
// that it is to be there, and a Job to have ended, before the objects that are none.
type Object struct {
	Kind, Namespace, Name string
	Hook                  bool
	Text                  string

	weight int
}

// Merge returns values with those of over, which win, member by member.
func Merge(values, over map[string]any) map[string]any { return loader.MergeMaps(values, over) }

// Render renders the chart in a folder for a release in namespace, with values over the chart's
// own. Values that the chart's schema refuses are an error that names them. The hooks come first
// in the order of their weight; otherwise objects stand as in the templates.
func Render(folder, namespace string, values map[string]any) ([]Object, error) {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("load chart %s: %w", folder, err)
	}
	release := common.ReleaseOptions{Name: "skipper", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("check values of chart %s: %w", folder, err)
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", folder, err)
	}
	return objects(files)
}

// objects reads what the templates gave.
func objects(files map[string]string) ([]Object, error) {
	var out []Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if ext := path.Ext(name); ext != ".yaml" {
			continue
		}
		some, err := Split(files[name])
		if err != nil {
			return nil, fmt.Errorf("read what %s gave: %w", name, err)
		}
		out = append(out, some...)
	}
	slices.SortStableFunc(out, func(a, b Object) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.weight, b.weight))
	})
	return out, nil
}

func rank(o Object) int {
	if o.Hook {
		return 0
	}
	return 1
}

// separator stands on a line of its own between documents.
var separator = regexp.MustCompile(`(?m)^---\s*$`)

// Split cuts a stream of YAML documents; those without an object are dropped.
func Split(text string) ([]Object, error) {
	var out []Object
	for _, document := range separator.Split(text, -1) {
		var head struct {
			Kind     string
			Metadata struct {
				Name, Namespace string
				Annotations     map[string]string
			}
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return nil, err
		}
		if head.Kind == "" {
			continue
		}
		o := Object{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name, Text: strings.TrimSpace(document)}
		_, o.Hook = head.Metadata.Annotations[hookAnnotation]
		o.weight, _ = strconv.Atoi(head.Metadata.Annotations[weightAnnotation]) // without one it is 0
		out = append(out, o)
	}
	return out, nil
}

// Join is the inverse of Split for the objects that pick chooses.
func Join(all []Object, pick func(Object) bool) string {
	var texts []string
	for _, o := range all {
		if pick(o) {
			texts = append(texts, o.Text)
		}
	}
	return strings.Join(texts, "\n---\n")
}

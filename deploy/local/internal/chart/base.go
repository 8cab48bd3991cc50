package chart

import "strings"

// sampleNamespace is the function namespace of the default values.
const sampleNamespace = "functions"

// generated stands above the files of Kustomize.
const generated = "# Made from deploy/helm/skipper by `make manifests`. Change it there.\n"

// Base is the chart with its default values as two files for Kustomize: Skipper itself, and what
// each function namespace needs, without a namespace.
func Base(folder string) (system, functions string, err error) {
	objects, err := Render(folder, "skipper-system", nil)
	if err != nil {
		return "", "", err
	}
	inSample := func(o Object) bool { return o.Namespace == sampleNamespace }
	system = Join(objects, func(o Object) bool { return !inSample(o) })
	functions = strings.ReplaceAll(Join(objects, inSample), "\n  namespace: "+sampleNamespace+"\n", "\n")
	return generated + system + "\n", generated + functions + "\n", nil
}

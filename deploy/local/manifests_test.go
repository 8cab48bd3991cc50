package main

import (
	"strings"
	"testing"
)

func TestExistingPartsLeaveOutWhatIsNotSkippers(t *testing.T) {
	const bootstrap = `
admin: {address: here}
dynamic_resources: {x: z}
overload_manager: {x: z}
static_resources:
  clusters: [{name: extproc}, {name: admin}]
  listeners: [{name: ingress}, {name: ready}]
`
	got, err := existingParts([]byte(bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	want := existingHeader + `dynamic_resources:
  x: z
static_resources:
  clusters:
    - name: extproc
  listeners:
    - name: ingress
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := existingParts([]byte("admin: {}")); err == nil || !strings.Contains(err.Error(), "static_resources") {
		t.Errorf("without resources: %v", err)
	}
}

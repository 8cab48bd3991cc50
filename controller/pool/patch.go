package pool

import (
	"encoding/json"
	"fmt"
	"strings"
)

// AnnotationPatch is a JSON patch that sets annotations, given as pairs of key
// and value, on a claimed pod. It takes effect only on the very pod (the UID),
// and only while it is the tenant's.
func AnnotationPatch(p Pod, annotations ...[2]string) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}
	ops := []operation{
		{"test", "/metadata/uid", p.UID},
		{"test", "/metadata/labels/" + pointer(LabelTenant), p.Tenant},
	}
	for _, a := range annotations {
		ops = append(ops, operation{"add", "/metadata/annotations/" + pointer(a[0]), a[1]})
	}
	b, err := json.Marshal(ops)
	if err != nil { // strings always encode
		panic(fmt.Sprintf("encode annotations: %v", err))
	}
	return b
}

// pointer writes a key as a part of a JSON pointer (RFC 6901).
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

package claim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/fn"

	"skipper/controller/pool"
)

// operation is one step of a JSON patch (RFC 6902). A nil Value is written as
// null: the API server takes a test for null as "is absent".
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

const annotations = "/metadata/annotations"

// Patch is the claim of p for f at now: a JSON patch that takes effect only if
// p is still the pod that was decided on, still owned by its ReplicaSet, and
// still unclaimed. P must be OwnedByReplicaSet.
func Patch(p pool.Pod, f *skipperpb.Function, now time.Time) []byte {
	return encode(append(append(ownerTests(p), unclaimedTests(p)...), writes(p, f, now)...))
}

func ownerTests(p pool.Pod) []operation {
	owner := "/metadata/ownerReferences/" + strconv.Itoa(p.ControllerRef)
	return []operation{
		{"test", "/metadata/uid", p.UID},
		{"test", owner + "/controller", true},
		{"test", owner + "/kind", "ReplicaSet"},
		{"test", owner + "/name", p.ReplicaSet},
	}
}

func unclaimedTests(p pool.Pod) []operation {
	tests := []operation{{"test", "/metadata/labels/" + escape(pool.LabelTenant), nil}}
	if !p.HasAnnotations {
		// Below a map that is not there nothing can be tested or added.
		return append(tests, operation{"test", annotations, nil})
	}
	return append(tests,
		operation{"test", annotationPath(pool.AnnotationFunction), nil},
		operation{"test", annotationPath(pool.AnnotationAssignedAt), nil},
	)
}

func writes(p pool.Pod, f *skipperpb.Function, now time.Time) []operation {
	values := []struct{ key, value string }{
		{pool.AnnotationTenant, f.GetTenant()},
		{pool.AnnotationFunction, string(fn.Marshal(f))},
		{pool.AnnotationAssignedAt, pool.FormatTime(now)},
		{pool.AnnotationReplicaSet, p.ReplicaSet},
	}
	ops := []operation{{"add", "/metadata/labels/" + escape(pool.LabelTenant), f.GetTenant()}}
	if !p.HasAnnotations {
		all := map[string]string{}
		for _, v := range values {
			all[v.key] = v.value
		}
		return append(ops, operation{"add", annotations, all})
	}
	for _, v := range values {
		ops = append(ops, operation{"add", annotationPath(v.key), v.value})
	}
	return ops
}

func annotationPath(key string) string { return annotations + "/" + escape(key) }

// escape writes a key as one step of a JSON pointer (RFC 6901).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func encode(ops []operation) []byte {
	b, err := json.Marshal(ops)
	if err != nil { // strings, bools and maps of strings always encode
		panic(fmt.Sprintf("encode claim: %v", err))
	}
	return b
}

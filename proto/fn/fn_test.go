package fn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const full = `{"namespace":"prod","deployment":"echo-server","tenant":"tenant-123","metadata":"v2",
 "scale":{"min_instances":1,"max_instances":10,"target_cpu_usage_milli":500,"target_memory_usage_mib":256,"target_in_flight_requests":50},
 "oneshot":false}`

func fullFunction() *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: "prod", Deployment: "echo-server", Tenant: "tenant-123", Metadata: "v2",
		Scale: &skipperpb.Scale{MinInstances: 1, MaxInstances: 10, TargetCpuUsageMilli: 500, TargetMemoryUsageMib: 256, TargetInFlightRequests: 50},
	}
}

func TestParseAccepts(t *testing.T) {
	small := &skipperpb.Function{Namespace: "a", Deployment: "b", Tenant: "c", Scale: &skipperpb.Scale{MaxInstances: 1}}
	oneshot := &skipperpb.Function{Namespace: "a", Deployment: "b", Tenant: "c", Scale: &skipperpb.Scale{MaxInstances: 1}, Oneshot: true}
	for name, row := range map[string]struct {
		in   string
		want *skipperpb.Function
	}{
		"every member":         {full, fullFunction()},
		"lowerCamelCase":       {`{"namespace":"a","deployment":"b","tenant":"c","scale":{"maxInstances":1}}`, small},
		"unknown members":      {`{"namespace":"a","deployment":"b","tenant":"c","scale":{"max_instances":1,"x":[{"y":1}]},"z":{"a":1}}`, small},
		"oneshot":              {`{"namespace":"a","deployment":"b","tenant":"c","scale":{"max_instances":1},"oneshot":true}`, oneshot},
		"same name elsewhere":  {`{"namespace":"a","deployment":"b","tenant":"c","scale":{"max_instances":1},"other":{"tenant":"d"}}`, small},
		"name equals a string": {`{"namespace":"a","deployment":"b","x":["tenant","tenant"],"tenant":"c","scale":{"max_instances":1}}`, small},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fn.Parse([]byte(row.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(row.want, got, protocmp.Transform()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	withTenant := func(tenant string) string {
		return fmt.Sprintf(`{"namespace":"a","deployment":"b","tenant":%q,"scale":{"max_instances":1}}`, tenant)
	}
	for name, row := range map[string]struct{ in, says string }{
		"empty":                   {``, "read function JSON"},
		"not an object":           {`[1]`, "read function JSON"},
		"cut short":               {`{"namespace":"a"`, "read function JSON"},
		"text behind":             {full + `x`, "read function JSON"},
		"two objects":             {full + full, "read function JSON"},
		"wrong type":              {`{"namespace":1}`, "read function JSON"},
		"not UTF-8":               {"{\"namespace\":\"\xff\"}", "read function JSON"},
		"negative":                {`{"namespace":"a","deployment":"b","tenant":"c","scale":{"max_instances":-1}}`, "read function JSON"},
		"member twice":            {`{"tenant":"a","tenant":"b"}`, `member "tenant" twice`},
		"member under both names": {`{"scale":{"max_instances":1,"maxInstances":2}}`, `member "maxInstances" twice`},
		"unknown member twice":    {`{"x":1,"x":2}`, `member "x" twice`},
		"twice, deep":             {`{"x":[{"y":{"z":1,"z":1}}]}`, `member "z" twice`},
		"deep nesting":            {strings.Repeat(`[`, 33), "nested deeper"},
		"no namespace":            {`{"deployment":"b","tenant":"c","scale":{"max_instances":1}}`, "namespace is empty"},
		"no deployment":           {`{"namespace":"a","tenant":"c","scale":{"max_instances":1}}`, "deployment is empty"},
		"no tenant":               {withTenant(""), "tenant is empty"},
		"tenant with a slash":     {withTenant("a/b"), "tenant"},
		"tenant with a space":     {withTenant("a b"), "tenant"},
		"tenant of 64":            {withTenant(strings.Repeat("a", 64)), "tenant"},
		"tenant ends in a dash":   {withTenant("a-"), "tenant"},
		"namespace in capitals":   {`{"namespace":"A","deployment":"b","tenant":"c","scale":{"max_instances":1}}`, "namespace"},
		"deployment of 64":        {`{"namespace":"a","deployment":"` + strings.Repeat("b", 64) + `","tenant":"c","scale":{"max_instances":1}}`, "deployment"},
		"no scale":                {`{"namespace":"a","deployment":"b","tenant":"c"}`, "scale is missing"},
		"scale null":              {`{"namespace":"a","deployment":"b","tenant":"c","scale":null}`, "scale is missing"},
		"max 0":                   {`{"namespace":"a","deployment":"b","tenant":"c","scale":{}}`, "max_instances is 0"},
		"min above max":           {`{"namespace":"a","deployment":"b","tenant":"c","scale":{"min_instances":3,"max_instances":2}}`, "above max_instances"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := fn.Parse([]byte(row.in))
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("Parse = %v, %v; want an error that says %q", f, err, row.says)
			}
		})
	}
}

func TestParseRefusesOverTheLimit(t *testing.T) {
	pad := strings.Repeat(" ", fn.MaxJSONBytes-len(full))
	if _, err := fn.Parse([]byte(full + pad)); err != nil {
		t.Errorf("exactly at the limit: %v", err)
	}
	if _, err := fn.Parse([]byte(full + pad + " ")); !errors.Is(err, fn.ErrTooLarge) {
		t.Errorf("one byte over: %v, want ErrTooLarge", err)
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	f := fullFunction()
	b := fn.Marshal(f)
	got, err := fn.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, got, protocmp.Transform()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	f.Metadata = "<&>"
	if b := fn.Marshal(f); !strings.Contains(string(b), `"metadata":"<&>"`) {
		t.Errorf("Marshal = %s, want metadata as it is", b)
	}
	want := `{"namespace":"prod","deployment":"echo-server","tenant":"tenant-123","metadata":"v2","scale":{"min_instances":1,"max_instances":10,"target_cpu_usage_milli":500,"target_memory_usage_mib":256,"target_in_flight_requests":50}}`
	if string(b) != want {
		t.Errorf("Marshal = %s\nwant      %s", b, want)
	}
}

// A header value may hold no control character, whatever the metadata.
func TestMarshalFitsAHeader(t *testing.T) {
	f := fullFunction()
	for c := range rune(0x100) {
		f.Metadata += string(c)
	}
	for i, c := range fn.Marshal(f) {
		if c < 0x20 || c == 0x7f {
			t.Errorf("byte %d is %#x", i, c)
		}
	}
	got, err := fn.Parse(fn.Marshal(f))
	if err != nil || got.GetMetadata() != f.GetMetadata() {
		t.Errorf("metadata = %q, %v; want %q", got.GetMetadata(), err, f.GetMetadata())
	}
}

// The hash is part of the contract: replicas of different versions must agree.
func TestHashIsPinned(t *testing.T) {
	for _, row := range []struct {
		key  fn.Key
		want uint64
	}{
		{fn.Key{}, 0x3aefa6fd5cf2deb4},
		{fn.Key{Namespace: "prod", Deployment: "echo-server", Tenant: "tenant-123"}, 0x896f2cfd44fdd93f},
		{fn.Key{Namespace: "prod", Deployment: "echo-server", Tenant: "tenant-123", Oneshot: true}, 0x8317ad0199ec54d3},
	} {
		if got := row.key.Hash(); got != row.want {
			t.Errorf("Hash(%+v) = %#x, want %#x", row.key, got, row.want)
		}
	}
}

// A key holds no separator, so equal strings mean equal keys, and the other way round.
func TestKeysDifferWhereStringsDiffer(t *testing.T) {
	same := func(a, b fn.Key) bool { return (a == b) == (a.String() == b.String()) }
	names := []string{"a", "b", "oneshot"}
	pick := func(n uint8) fn.Key {
		return fn.Key{Namespace: names[n%3], Deployment: names[n/3%3], Tenant: names[n/9%3], Oneshot: n&128 != 0}
	}
	if err := quick.Check(func(a, b uint8) bool { return same(pick(a), pick(b)) }, &quick.Config{MaxCount: 20000}); err != nil {
		t.Error(err)
	}
}

// FuzzParse: whatever is accepted is valid, and survives Marshal unchanged.
func FuzzParse(f *testing.F) {
	for _, s := range []string{full, `{}`, `{"tenant":"a","tenant":"b"}`, `{"scale":{"maxInstances":1e1}}`, `{"a":[[[]]]}`, `{"namespace":"a","deployment":"b","tenant":"c","scale":{"maxInstances":"7"}}`, "\x00", `{"x":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := fn.Parse(b)
		if err != nil {
			return
		}
		if err := fn.Validate(got); err != nil {
			t.Fatalf("accepted, yet invalid: %v", err)
		}
		again, err := fn.Parse(fn.Marshal(got))
		if errors.Is(err, fn.ErrTooLarge) { // escapes can make it longer
			return
		}
		if d := cmp.Diff(got, again, protocmp.Transform()); err != nil || d != "" {
			t.Fatalf("round trip: %v\n%s", err, d)
		}
	})
}

package function_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/function"
)

const sampleJSON = `{"namespace":"prod","deployment":"echo-server","tenant":"tenant-123","metadata":"v2",` +
	`"scale":{"min_instances":1,"max_instances":10,"target_cpu_usage_milli":500,"target_memory_usage_mib":256,` +
	`"target_in_flight_requests":50},"oneshot":false}`

func sampleFunction() function.Function {
	return function.Function{
		Namespace: "prod", Deployment: "echo-server", Tenant: "tenant-123", Metadata: "v2",
		Scale: function.Scale{
			MinInstances: 1, MaxInstances: 10, TargetCPUUsageMilli: 500, TargetMemoryUsageMiB: 256, TargetInFlightRequests: 50,
		},
	}
}

func TestParseFunctionAccepts(t *testing.T) {
	smallest := function.Function{Namespace: "n", Deployment: "d", Tenant: "t", Scale: function.Scale{MaxInstances: 1}}
	oneshot := smallest
	oneshot.Oneshot = true
	rows := []struct {
		name string
		json string
		want function.Function
	}{
		{"the contract's example", sampleJSON, sampleFunction()},
		{
			"lowerCamelCase",
			`{"namespace":"prod","deployment":"echo-server","tenant":"tenant-123","metadata":"v2","scale":{"minInstances":1,` +
				`"maxInstances":10,"targetCpuUsageMilli":500,"targetMemoryUsageMib":256,"targetInFlightRequests":50}}`,
			sampleFunction(),
		},
		{"smallest", `{"namespace":"n","deployment":"d","tenant":"t","scale":{"max_instances":1}}`, smallest},
		{"unknown members", `{"x":[{"a":1},{"a":2}],"namespace":"n","deployment":"d","tenant":"t","scale":{"y":{},"max_instances":1}}`, smallest},
		{"null is absent", `{"namespace":"n","deployment":"d","tenant":"t","metadata":null,"oneshot":null,"scale":{"max_instances":1,"min_instances":null}}`, smallest},
		{"oneshot", `{"oneshot":true,"namespace":"n","deployment":"d","tenant":"t","scale":{"max_instances":1}}`, oneshot},
		{"names are exact", `{"Tenant":"x","TENANT":"y","namespace":"n","deployment":"d","tenant":"t","scale":{"max_instances":1}}`, smallest},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := function.ParseFunction([]byte(row.json))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("function (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseFunctionRefuses(t *testing.T) {
	rest := `"namespace":"n","deployment":"d","scale":{"max_instances":1}`
	rows := []struct{ name, json string }{
		{"empty", ""},
		{"not JSON", "hello"},
		{"no object", "[1]"},
		{"null", "null"},
		{"cut short", `{"tenant":"t",` + rest},
		{"something behind it", `{"tenant":"t",` + rest + `} x`},
		{"second document", `{"tenant":"t",` + rest + `}{}`},
		{"twice the same member", `{"tenant":"t","tenant":"u",` + rest + `}`},
		{"twice by escape", `{"tenant":"t","ten\u0061nt":"u",` + rest + `}`},
		{"twice inside scale", `{"tenant":"t","namespace":"n","deployment":"d","scale":{"max_instances":1,"maxInstances":2}}`},
		{"twice inside an unknown member", `{"tenant":"t","x":[{"a":1,"a":2}],` + rest + `}`},
		{"no tenant", `{` + rest + `}`},
		{"tenant empty", `{"tenant":"",` + rest + `}`},
		{"tenant too long for a label", `{"tenant":"` + strings.Repeat("t", 64) + `",` + rest + `}`},
		{"tenant with a space", `{"tenant":"a b",` + rest + `}`},
		{"tenant ends with a dash", `{"tenant":"a-",` + rest + `}`},
		{"tenant ends with a line", `{"tenant":"a\n",` + rest + `}`},
		{"tenant is a number", `{"tenant":1,` + rest + `}`},
		{"no namespace", `{"tenant":"t","deployment":"d","scale":{"max_instances":1}}`},
		{"no deployment", `{"tenant":"t","namespace":"n","scale":{"max_instances":1}}`},
		{"no scale", `{"tenant":"t","namespace":"n","deployment":"d"}`},
		{"scale null", `{"tenant":"t","namespace":"n","deployment":"d","scale":null}`},
		{"scale a list", `{"tenant":"t","namespace":"n","deployment":"d","scale":[]}`},
		{"no maximum", `{"tenant":"t","namespace":"n","deployment":"d","scale":{}}`},
		{"negative", `{"tenant":"t","namespace":"n","deployment":"d","scale":{"max_instances":-1}}`},
		{"minimum above maximum", `{"tenant":"t","namespace":"n","deployment":"d","scale":{"min_instances":2,"max_instances":1}}`},
		{"invalid UTF-8", "{\"tenant\":\"t\",\"metadata\":\"\xff\"," + rest + `}`},
		{"too long", `{"tenant":"t","metadata":"` + strings.Repeat("m", function.MaxFunctionBytes) + `",` + rest + `}`},
		{"nested too deep", `{"tenant":"t","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,` + rest + `}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if f, err := function.ParseFunction([]byte(row.json)); err == nil {
				t.Errorf("accepted as %+v", f)
			}
		})
	}
}

// What is accepted survives a round trip through the standard library, which reads the same names another way.
func FuzzParseFunction(f *testing.F) {
	for _, seed := range []string{
		sampleJSON, "", "{}", "null", `{"tenant":"t","tenant":"u"}`, `{"a":{"b":[1,{"c":null}]}}`,
		`{"namespace":"n","deployment":"d","tenant":"t","scale":{"maxInstances":1}}`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := function.ParseFunction(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var naive function.Function
		if err := json.Unmarshal(again, &naive); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, naive); diff != "" {
			t.Errorf("function changed on the way (-parsed +again):\n%s", diff)
		}
	})
}

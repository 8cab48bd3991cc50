package view

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func TestParseFunction(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*skipperpb.Function{
		"prod/echo/acme":         {Namespace: "prod", Deployment: "echo", Tenant: "acme"},
		"prod/echo/acme/oneshot": {Namespace: "prod", Deployment: "echo", Tenant: "acme", Oneshot: true},
		` {"namespace":"prod","deployment":"echo","tenant":"acme","metadata":"v2","scale":{"max_instances":3}}`: {
			Namespace: "prod", Deployment: "echo", Tenant: "acme", Metadata: "v2", Scale: &skipperpb.Scale{MaxInstances: 3},
		},
	} {
		got, err := ParseFunction(text)
		if err != nil || !proto.Equal(want, got) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "echo", "prod/echo", "prod/echo/", "/echo/acme", "prod/echo/acme/", "prod/echo/acme/twoshot", "prod/echo/a b", "Prod/echo/acme", "{}", "a/b/c/oneshot/"} {
		if f, err := ParseFunction(text); err == nil || !strings.ContainsAny(err.Error(), ":") {
			t.Errorf("%q was read as %v, error %v", text, f, err)
		}
	}
}

// A name that is taken is the function's own name again.
func FuzzParseFunction(f *testing.F) {
	for _, s := range []string{"prod/echo/acme", "prod/echo/acme/oneshot", "a/b/c/d", "//", `{"namespace":"a"}`, "a/b/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseFunction(text)
		if err != nil {
			return
		}
		if back := fn.KeyOf(got).String(); got.GetScale() == nil && back != text {
			t.Errorf("%q was read as %q", text, back)
		}
		if again, err := ParseFunction(fn.KeyOf(got).String()); err != nil || fn.KeyOf(again) != fn.KeyOf(got) {
			t.Errorf("%q: its key %q is read as %v, %v", text, fn.KeyOf(got), again, err)
		}
	})
}

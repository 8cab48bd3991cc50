package trust

import (
	"math/rand/v2"
	"strings"
	"testing"

	"skipper/proto/fn"
)

func key(namespace, deployment string) fn.Key {
	return fn.Key{Namespace: namespace, Deployment: deployment, Tenant: "t"}
}

func TestRules(t *testing.T) {
	for name, row := range map[string]struct {
		namespaces, deployments []string
		listener                string
		key                     fn.Key
		want                    bool
	}{
		"nothing listed":                        {nil, nil, "", key("a", "x"), true},
		"namespace listed":                      {[]string{"a"}, nil, "", key("a", "x"), true},
		"namespace not listed":                  {[]string{"a"}, nil, "", key("b", "x"), false},
		"deployment listed":                     {nil, []string{"a/x"}, "", key("a", "x"), true},
		"same name elsewhere":                   {nil, []string{"a/x"}, "", key("b", "x"), false},
		"beginning of a name":                   {nil, []string{"a/x"}, "", key("a", "xy"), false},
		"all of a namespace":                    {nil, []string{"a/*"}, "", key("a", "y"), true},
		"either list is enough":                 {[]string{"b"}, []string{"a/x"}, "", key("a", "x"), true},
		"general entry, listener without own":   {[]string{"a", "public=b"}, nil, "other", key("a", "x"), true},
		"own entry":                             {[]string{"a", "public=b"}, nil, "public", key("b", "x"), true},
		"own entries replace general ones":      {[]string{"a", "public=b"}, nil, "public", key("a", "x"), false},
		"own entry does not open others":        {[]string{"a", "public=b"}, nil, "", key("b", "x"), false},
		"own deployment replaces both":          {[]string{"a"}, []string{"public=b/x"}, "public", key("a", "x"), false},
		"the only listener has no name":         {[]string{"a", "ingress=b"}, nil, "", key("a", "x"), false},
		"only others have entries: all is open": {[]string{"public=b"}, nil, "", key("a", "x"), true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ParseRules(row.namespaces, row.deployments, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.of(row.listener).allows(row.key); got != row.want {
				t.Errorf("%v is let through: %v, want %v", row.key, got, row.want)
			}
		})
	}
}

func TestSignaturesPerListener(t *testing.T) {
	for name, row := range map[string]struct {
		signed   []string
		listener string
		want     bool
	}{
		"nobody":         {nil, "public", false},
		"everybody":      {[]string{"*"}, "", true},
		"everybody, own": {[]string{"*", "public"}, "public", true},
		"one":            {[]string{"public"}, "public", true},
		"another":        {[]string{"public"}, "inner", false},
		"without a name": {[]string{"public"}, "", false},
		"the only one":   {[]string{"ingress"}, "", true},
		"the first":      {[]string{"ingress"}, "ingress", true},
		"beside it":      {[]string{"ingress"}, "public", false},
	} {
		r, err := ParseRules([]string{"a"}, nil, row.signed)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.of(row.listener).signed; got != row.want || r.Signed() != (row.signed != nil) {
			t.Errorf("%s: signed %v, any %v", name, got, r.Signed())
		}
		if !r.of(row.listener).allows(key("a", "x")) || r.of(row.listener).allows(key("b", "x")) {
			t.Errorf("%s: the general list does not hold on %q", name, row.listener)
		}
	}
}

func TestParseRulesNamesEachFault(t *testing.T) {
	for _, fault := range []struct{ flag, entry string }{
		{"allow-namespaces", "A"},
		{"allow-namespaces", ""},
		{"allow-namespaces", "a/b"},
		{"allow-namespaces", "Public=a"},
		{"allow-namespaces", "=a"},
		{"allow-deployments", "a"},
		{"allow-deployments", "a/"},
		{"allow-deployments", "*/x"},
		{"allow-deployments", "a/x*"},
		{"allow-deployments", "a/x/y"},
		{"require-signed-function", "A b"},
		{"require-signed-function", ""},
	} {
		lists := map[string][]string{fault.flag: {fault.entry}}
		_, err := ParseRules(lists["allow-namespaces"], lists["allow-deployments"], lists["require-signed-function"])
		if err == nil || !strings.Contains(err.Error(), "--"+fault.flag) {
			t.Errorf("--%s=%q: %v", fault.flag, fault.entry, err)
		}
	}
	if _, err := ParseRules([]string{"A", "B"}, []string{"c"}, nil); err == nil || strings.Count(err.Error(), "--allow") != 3 {
		t.Errorf("three faults are reported as %v", err)
	}
}

// naive reads the lists anew for each question.
func naive(namespaces, deployments []string, listener string, k fn.Key) bool {
	entries := map[string][]string{}
	for _, e := range append(append([]string{}, namespaces...), deployments...) {
		l, rest, found := strings.Cut(e, "=")
		if !found {
			l, rest = "", e
		}
		entries[l] = append(entries[l], rest)
	}
	list := entries[listener]
	if len(list) == 0 {
		list = entries[""]
	}
	for _, e := range list {
		if e == k.Namespace || e == k.Namespace+"/*" || e == k.Namespace+"/"+k.Deployment {
			return true
		}
	}
	return len(list) == 0
}

func TestRulesAgreeWithANaiveReader(t *testing.T) {
	some := func(from ...string) (out []string) {
		for range rand.IntN(4) {
			out = append(out, from[rand.IntN(len(from))])
		}
		return out
	}
	for range 5000 {
		ns := some("a", "b", "public=a", "public=b", "inner=b")
		ds := some("a/x", "a/*", "b/y", "public=a/x", "inner=b/*", "inner=a/y")
		r, err := ParseRules(ns, ds, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []string{"", "public", "inner", "other"} {
			for _, k := range []fn.Key{key("a", "x"), key("a", "y"), key("b", "x"), key("b", "y")} {
				if got, want := r.of(l).allows(k), naive(ns, ds, l, k); got != want {
					t.Fatalf("%v %v: on %q %v is let through: %v, want %v", ns, ds, l, k, got, want)
				}
			}
		}
	}
}

package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	for name, row := range map[string]struct {
		visit  Visit
		before int
		want   Verdict
	}{
		"own pod":                         {Visit{Tenant: "a", Asked: "a", Image: Plain}, 3, Home},
		"another's pod":                   {Visit{Tenant: "b", Asked: "a", Image: Plain}, 0, Foreign},
		"another's guarded pod":           {Visit{Tenant: "b", Asked: "a", Image: Guarded}, 0, Foreign},
		"nobody's pod that checks":        {Visit{Asked: "a", Image: Guarded}, 0, Foreign},
		"nobody's pod that does not":      {Visit{Asked: "a", Image: Plain}, 0, Stray},
		"first of a oneshot":              {Visit{Tenant: "a", Asked: "a", Oneshot: true}, 0, Home},
		"second of a oneshot":             {Visit{Tenant: "a", Asked: "a", Oneshot: true}, 1, Twice},
		"another's oneshot, served twice": {Visit{Tenant: "b", Asked: "a", Oneshot: true}, 1, Foreign},
	} {
		if got := Judge(row.visit, row.before); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// A violation is counted once, whoever sees it, and told with what led to it.
func TestViolationIsToldOnce(t *testing.T) {
	var told []string
	past := func(ip string) []Tenure { return []Tenure{{Pod: "pod-before", Tenant: "a", UID: ip}} }
	l := NewLedger(func(s string) { told = append(told, s) }, past)
	l.Chaos(string(FreezeWatch), "of controller 1")
	l.Chaos(podKill, "some pod")
	l.Visit(Visit{Addr: "127.77.0.9:80", Tenant: "b", Asked: "a", Request: "r1", UID: "u"})
	l.Violation("r1", "the client saw it too", "")
	l.Violation("r2", "only the client saw it", "")
	if len(told) != 2 || len(l.Violations()) != 2 {
		t.Fatalf("told %q, want two", told)
	}
	for _, want := range []string{"another tenant's pod", `"a"`, `"b"`, "127.77.0.9 had pod-before", "freeze watches of controller 1"} {
		if !strings.Contains(told[0], want) {
			t.Errorf("%q lacks %q", told[0], want)
		}
	}
	if strings.Contains(told[0], "some pod") {
		t.Errorf("%q names every pod that died", told[0])
	}
}

func TestReportCountsAll(t *testing.T) {
	l := NewLedger(func(string) {}, func(string) []Tenure { return nil })
	for range 3 {
		l.Outcome(OK)
	}
	l.Outcome("503 hold_timeout")
	for range told + 5 {
		l.Violation("", "again", "")
	}
	l.Visit(Visit{Tenant: "a", Asked: "a", Oneshot: true, UID: "u", Image: Guarded})
	if all, ok := l.Requests(); all != 4 || ok != 3 || l.Oneshots() != 1 {
		t.Errorf("%d requests, %d ok, %d oneshots", all, ok, l.Oneshots())
	}
	report := l.Report(Reuse{Pods: 7, TenantsSoon: 2})
	for _, want := range []string{"4 requests", "1 503 hold_timeout", "violations: 25", "1 guarded image: home", "to another pod 7 times"} {
		if !strings.Contains(report, want) {
			t.Errorf("%s\nlacks %q", report, want)
		}
	}
}

func TestAddressesAreReusedAtOnce(t *testing.T) {
	a := NewAddresses(2, FreedLast)
	now := time.Unix(0, 0)
	take := func(uid string) string {
		ip, ok := a.Take("pod", uid, now)
		if !ok {
			t.Fatalf("no address for %s", uid)
		}
		return ip
	}
	first, second := take("u1"), take("u2")
	if first == second {
		t.Fatalf("two pods at %s", first)
	}
	if _, ok := a.Take("pod", "u3", now); ok {
		t.Error("three pods have two addresses")
	}
	a.Assigned(first, "t1", now)
	a.Release(first, now)
	now = now.Add(Soon)
	if third := take("u3"); third != first {
		t.Errorf("%s was given, want %s, which was freed", third, first)
	}
	a.Assigned(first, "t2", now)
	a.Assigned(first, "t2", now)
	a.Release(first, now)
	now = now.Add(2 * Soon)
	take("u4")
	a.Release(first, now) // nobody had it
	take("u5")
	a.Assigned(first, "t2", now)
	a.Release(first, now)
	take("u6")
	a.Assigned(first, "t9", now)
	if d := cmp.Diff(Reuse{Pods: 4, PodsSoon: 3, Tenants: 2, TenantsSoon: 2}, a.Reuse()); d != "" {
		t.Errorf("reuse (-want +got):\n%s", d)
	}
	if past := a.Past(first); len(past) != 5 || past[1].Tenant != "t2" {
		t.Errorf("past %v", past)
	}
}

func TestAddressesRest(t *testing.T) {
	a, now, seen := NewAddresses(600, FreedFirst), time.Unix(0, 0), map[string]bool{}
	for range 600 {
		ip, _ := a.Take("pod", "uid", now)
		a.Release(ip, now)
		seen[ip] = true
	}
	if len(seen) != 600 || a.Reuse() != (Reuse{}) {
		t.Errorf("%d addresses were given to 600 pods, %+v", len(seen), a.Reuse())
	}
}

package keys

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"time"

	"skipper/function/token"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func key(n byte) ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
}

type published = map[string][]ed25519.PublicKey

func TestNext(t *testing.T) {
	t.Parallel()
	a, b, c := key(1), key(2), key(3)
	only := func(k ...ed25519.PublicKey) published { return published{"x": k, "y": k} }
	for _, row := range []struct {
		name string
		f    Facts
		want Step
	}{
		{"one key", Facts{Current: a, Published: only(a)}, Prepare},
		{"no function namespace", Facts{Current: a}, Prepare},
		{"pods have none", Facts{Current: a, Published: published{"x": {a}, "y": nil}}, Publish},
		{"prepared", Facts{Current: a, Next: b, Published: only(a)}, Publish},
		{"published to one namespace", Facts{Current: a, Next: b, Published: published{"x": {a, b}, "y": {a}}, PublishedAt: now.Add(-time.Hour)}, Publish},
		{"taken back by a deploy", Facts{Current: a, Next: b, Published: only(b), PublishedAt: now.Add(-time.Hour)}, Publish},
		{"published just now", Facts{Current: a, Next: b, Published: only(a, b), PublishedAt: now.Add(-119 * time.Second)}, WaitForPods},
		{"published", Facts{Current: a, Next: b, Published: only(a, b), PublishedAt: now.Add(-Propagation)}, Switch},
		{"switched, controllers of before", Facts{Current: b, Published: only(a, b), SigningSince: now, Controllers: []time.Time{now.Add(-time.Hour), now}}, Restart},
		{"restarted", Facts{Current: b, Published: only(a, b), SigningSince: now.Add(-time.Hour), Controllers: []time.Time{now, now}}, WaitForTokens},
		{"tokens have expired", Facts{Current: b, Published: only(a, b), SigningSince: now.Add(-token.Lifetime), Controllers: []time.Time{now}}, Retire},
		{"a key that nobody knows since when", Facts{Current: b, Published: only(b, c)}, Retire},
		{"retired", Facts{Current: b, Published: only(b), SigningSince: now.Add(-token.Lifetime)}, Prepare},
	} {
		got := Next(row.f, now, token.Lifetime)
		if got.Step != row.want || got.Why == "" || (got.Until != nil) != (got.Step == WaitForPods || got.Step == WaitForTokens) {
			t.Errorf("%s: %+v, want %s", row.name, got, row.want)
		}
	}
}

// A rotation carried out step by step, whatever is left in between: at no time
// can a controller sign with a key that a pod does not know.
func TestRotationNeverSignsWithAnUnknownKey(t *testing.T) {
	t.Parallel()
	at, clock := map[Step]int{}, now
	f := Facts{Current: key(1), Published: published{"x": {key(1)}, "y": {key(1)}}, Controllers: []time.Time{now.Add(-time.Hour)}}
	inPods, inController := published{"x": {key(1)}, "y": {key(1)}}, key(1)
	for range 20 {
		p := Next(f, clock, token.Lifetime)
		at[p.Step]++
		switch p.Step {
		case Prepare:
			if at[Prepare] == 2 {
				if len(f.Published["x"]) != 1 || !f.Current.Equal(key(2)) || at[Switch] != 1 || at[Retire] == 0 {
					t.Fatalf("it ends with %+v", f)
				}
				return
			}
			f.Next, f.PublishedAt = key(2), clock
		case Publish, Retire:
			for _, ns := range []string{"x", "y"} { // one namespace at a time: the command may be cut off
				if want := Wanted(f, f.Published[ns], p.Step); len(want) != len(f.Published[ns]) {
					f.Published[ns] = want
					break
				}
			}
			f.PublishedAt = clock
		case WaitForPods, WaitForTokens:
			clock = *p.Until
			inPods = published{"x": f.Published["x"], "y": f.Published["y"]}
		case Switch:
			f.Current, f.Next, f.SigningSince = f.Next, nil, clock
		case Restart:
			inController, f.Controllers = f.Current, []time.Time{clock}
		}
		for ns, have := range inPods {
			if !contains(have, inController) {
				t.Fatalf("after %s: pods in %s do not know the key that signs", p.Step, ns)
			}
		}
	}
	t.Errorf("it does not end: %v", at)
}

func TestGeneratedKeysAreRead(t *testing.T) {
	t.Parallel()
	private, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	k, err := PublicOf(private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Encode([]ed25519.PublicKey{k, key(1)})
	if err != nil {
		t.Fatal(err)
	}
	back, err := token.ParsePublicKeys(text)
	if err != nil || len(back) != 2 || !back[0].Equal(k) || Fingerprint(k) == Fingerprint(key(1)) || Fingerprint(nil) != "" {
		t.Errorf("read back %v, %v", back, err)
	}
	for _, bad := range [][]byte{nil, []byte("x"), text} {
		if _, err := PublicOf(bad); err == nil {
			t.Errorf("%q was taken for a private key", bad)
		}
	}
}

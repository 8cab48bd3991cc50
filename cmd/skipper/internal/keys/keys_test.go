package keys

import (
	"bytes"
	"crypto/ed25519"
	"strings"
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

// model is a cluster on which a rotation is carried out: what is written, and
// what pods and controllers have taken over of it.
type model struct {
	Facts
	clock        time.Time
	inPods       published
	inController ed25519.PublicKey
}

func (m *model) carryOut(p Plan) {
	switch p.Step {
	case Prepare:
		m.Next, m.PublishedAt = key(2), m.clock
	case Publish, Retire:
		m.PublishedAt = m.clock
		for _, ns := range []string{"x", "y"} { // one namespace at a time: the command may be cut off
			if want := Wanted(m.Facts, m.Published[ns], p.Step); len(want) != len(m.Published[ns]) {
				m.Published[ns] = want
				return
			}
		}
	case WaitForPods, WaitForTokens:
		m.clock = *p.Until
		m.inPods = published{"x": m.Published["x"], "y": m.Published["y"]}
	case Switch:
		m.Current, m.Next, m.SigningSince = m.Next, nil, m.clock
	case Restart:
		m.inController, m.Controllers = m.Current, []time.Time{m.clock}
	}
}

// A rotation carried out step by step, whatever is left in between: at no time
// can a controller sign with a key that a pod does not know.
func TestRotationNeverSignsWithAnUnknownKey(t *testing.T) {
	t.Parallel()
	m := &model{
		Facts: Facts{Current: key(1), Published: published{"x": {key(1)}, "y": {key(1)}}, Controllers: []time.Time{now.Add(-time.Hour)}},
		clock: now, inPods: published{"x": {key(1)}, "y": {key(1)}}, inController: key(1),
	}
	var steps []string
	for len(steps) < 20 {
		p := Next(m.Facts, m.clock, token.Lifetime)
		if steps = append(steps, string(p.Step)); p.Step == Prepare && len(steps) > 1 {
			break
		}
		m.carryOut(p)
		for ns, have := range m.inPods {
			if !contains(have, m.inController) {
				t.Fatalf("after %s: pods in %s do not know the key that signs", p.Step, ns)
			}
		}
	}
	const want = "prepare publish publish wait-for-pods switch restart wait-for-tokens retire retire prepare"
	if got := strings.Join(steps, " "); got != want || !m.Current.Equal(key(2)) || len(m.Published["x"]) != 1 {
		t.Errorf("steps %s, want %s; it ends with %+v", got, want, m.Facts)
	}
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

package delta_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"

	"skipper/xds/server/internal/delta"
)

type request = discoveryv3.DeltaDiscoveryRequest

func rules(wildcard bool) delta.Rules {
	return delta.Rules{Wildcard: wildcard, MaxNames: 5, CheckName: func(name string) error {
		if strings.HasPrefix(name, "bad") {
			return errors.New("it is bad")
		}
		return nil
	}}
}

func TestRequestsThatAreRefused(t *testing.T) {
	many := []string{"1", "2", "3", "4", "5", "6"}
	for _, row := range []struct {
		name     string
		wildcard bool
		r        *request
		want     error
	}{
		{"no names", false, &request{}, delta.ErrWildcard},
		{"star", false, &request{ResourceNamesSubscribe: []string{"a", "*"}}, delta.ErrWildcard},
		{"only unsubscribing", false, &request{ResourceNamesUnsubscribe: []string{"a"}}, delta.ErrWildcard},
		{"bad name", true, &request{ResourceNamesSubscribe: []string{"a", "bad"}}, delta.ErrName},
		{"empty name", true, &request{ResourceNamesSubscribe: []string{""}}, delta.ErrName},
		{"long name", true, &request{ResourceNamesSubscribe: []string{strings.Repeat("x", 513)}}, delta.ErrName},
		{"too many names", true, &request{ResourceNamesSubscribe: many}, delta.ErrTooMany},
		{"too many versions", true, &request{InitialResourceVersions: map[string]string{"1": "", "2": "", "3": "", "4": "", "5": "", "6": ""}}, delta.ErrTooMany},
		{"no names, allowed", true, &request{}, nil},
		{"star, allowed", true, &request{ResourceNamesSubscribe: []string{"*"}}, nil},
		{"a name", false, &request{ResourceNamesSubscribe: []string{"a"}}, nil},
	} {
		s := delta.New(rules(row.wildcard))
		if _, err := s.Handle(row.r); !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", row.name, err, row.want)
		} else if err != nil && len(s.Names()) > 0 {
			t.Errorf("%s: refused, but subscribed to %v", row.name, s.Names())
		}
	}
}

// versions is a world: names to versions.
type versions map[string]string

func (v versions) find(name string) (*discoveryv3.Resource, bool) {
	if v[name] == "pending" {
		return nil, false
	}
	if v[name] == "" {
		return nil, true
	}
	return &discoveryv3.Resource{Name: name, Version: v[name]}, true
}

func (v versions) next(s *delta.Subscription, nonce string, generation uint64) string {
	sent := s.Next("type", delta.Stamp{Nonce: nonce, At: time.Unix(0, 0), Generation: generation, MaxBytes: 1000}, v.find)
	if sent == nil {
		return "-"
	}
	var out []string
	for _, r := range sent.Response.GetResources() {
		out = append(out, r.GetName()+"="+r.GetVersion())
	}
	for _, name := range sent.Response.GetRemovedResources() {
		out = append(out, "-"+name)
	}
	return strings.Join(out, " ")
}

// handle does for one subscription what a server does for all.
func (v versions) handle(t *testing.T, s *delta.Subscription, r *request) delta.Outcome {
	t.Helper()
	o, err := s.Handle(r)
	if err != nil {
		t.Fatal(err)
	}
	if o.Everything {
		for name, version := range v {
			s.Offer(name, version)
		}
		for _, name := range s.Claimed() {
			s.Offer(name, v[name])
		}
	}
	for _, name := range o.Subscribed {
		s.Offer(name, v[name])
	}
	return o
}

func TestOneResponseIsOnItsWayAtATime(t *testing.T) {
	s, v := delta.New(rules(true)), versions{"a": "1", "b": "1"}
	v.handle(t, s, &request{ResourceNamesSubscribe: []string{"b", "a", "c"}})
	got := []string{v.next(s, "n1", 1)}
	v["a"], v["b"] = "2", "2"
	s.Changed("a")
	s.Changed("b")
	got = append(got, v.next(s, "n2", 2))
	v["a"] = "3"
	s.Changed("a")
	v.handle(t, s, &request{ResponseNonce: "other"})
	got = append(got, v.next(s, "n2", 3))
	v.handle(t, s, &request{ResponseNonce: "n1"})
	got = append(got, v.next(s, "n2", 3))
	want := []string{"a=1 b=1 -c", "-", "-", "a=3 b=2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReconnectedClientGetsOnlyWhatChanged(t *testing.T) {
	v := versions{"same": "1", "changed": "2", "new": "1"}
	claims := map[string]string{"same": "1", "changed": "1", "gone": "1"}
	for _, row := range []struct {
		name      string
		subscribe []string
		want      string
	}{
		{"by name", []string{"same", "changed", "gone"}, "changed=2 -gone"},
		{"everything", nil, "changed=2 new=1 -gone"},
		{"everything by star", []string{"*"}, "changed=2 new=1 -gone"},
		{"claims without a subscription count for nothing", []string{"new"}, "new=1"},
	} {
		s := delta.New(rules(true))
		v.handle(t, s, &request{ResourceNamesSubscribe: row.subscribe, InitialResourceVersions: claims})
		if got := v.next(s, "n1", 1); got != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

func TestSubscribingAgainSendsAgain(t *testing.T) {
	s, v := delta.New(rules(false)), versions{"a": "1"}
	v.handle(t, s, &request{ResourceNamesSubscribe: []string{"a"}})
	v.next(s, "n1", 1)
	v.handle(t, s, &request{ResponseNonce: "n1"})
	v.handle(t, s, &request{ResourceNamesSubscribe: []string{"a"}})
	if got := v.next(s, "n2", 1); got != "a=1" {
		t.Errorf("got %q", got)
	}
}

func TestFirstWildcardIsAnsweredEvenWhenEmpty(t *testing.T) {
	s, v := delta.New(rules(true)), versions{}
	v.handle(t, s, &request{})
	if got := v.next(s, "n1", 1); got != "" {
		t.Errorf("got %q, want an empty response", got)
	}
	v.handle(t, s, &request{ResponseNonce: "n1"})
	if got := v.next(s, "n2", 1); got != "-" {
		t.Errorf("got %q, want none", got)
	}
}

func TestUnsubscribing(t *testing.T) {
	v := versions{"a": "1", "b": "1"}
	named := delta.New(rules(true))
	v.handle(t, named, &request{ResourceNamesSubscribe: []string{"a", "b"}})
	v.handle(t, named, &request{ResourceNamesUnsubscribe: []string{"a", "x"}})
	named.Changed("a")
	if got := v.next(named, "n1", 1); got != "b=1" {
		t.Errorf("by name: got %q", got)
	}
	all := delta.New(rules(true))
	v.handle(t, all, &request{ResourceNamesSubscribe: []string{"*", "a"}})
	v.next(all, "n1", 1)
	v.handle(t, all, &request{ResponseNonce: "n1", ResourceNamesUnsubscribe: []string{"a"}})
	if got := v.next(all, "n2", 1); got != "a=1" {
		t.Errorf("within everything: got %q, want to hear that it is still there", got)
	}
	v.handle(t, all, &request{ResponseNonce: "n2", ResourceNamesUnsubscribe: []string{"*"}})
	all.Changed("b")
	if got := v.next(all, "n3", 1); got != "-" {
		t.Errorf("after everything: got %q", got)
	}
}

func TestUnsubscribingFromWhatIsOnItsWayForgetsIt(t *testing.T) {
	s, v := delta.New(rules(false)), versions{"a": "1"}
	v.handle(t, s, &request{ResourceNamesSubscribe: []string{"a"}})
	v.next(s, "n1", 1)
	v.handle(t, s, &request{ResourceNamesUnsubscribe: []string{"a"}})
	v.handle(t, s, &request{ResponseNonce: "n1"})
	if got := s.Claimed(); len(got) > 0 {
		t.Errorf("still remembers %v", got)
	}
}

func TestPendingResourceIsNotAnswered(t *testing.T) {
	s, v := delta.New(rules(false)), versions{"a": "pending"}
	v.handle(t, s, &request{ResourceNamesSubscribe: []string{"a"}})
	if got := v.next(s, "n1", 1); got != "-" {
		t.Errorf("got %q", got)
	}
	v["a"] = "1"
	s.Offer("a", "1")
	if got := v.next(s, "n1", 1); got != "a=1" {
		t.Errorf("got %q", got)
	}
}

func TestResponsesAreBoundedInSize(t *testing.T) {
	s, v := delta.New(delta.Rules{Wildcard: true, MaxNames: 1000}), versions{}
	for _, c := range "abcdefghij" {
		v[strings.Repeat(string(c), 100)] = "1"
	}
	v.handle(t, s, &request{})
	for _, want := range []int{5, 5, 0} { // about 200 bytes each: name twice
		sent := s.Next("type", delta.Stamp{Nonce: "n", MaxBytes: 1000}, v.find)
		got := 0
		if sent != nil {
			got = len(sent.Response.GetResources())
		}
		if got != want {
			t.Fatalf("got %d resources, want %d", got, want)
		}
		v.handle(t, s, &request{ResponseNonce: "n"})
	}
}

func TestAcknowledged(t *testing.T) {
	s, v := delta.New(rules(false)), versions{"a": "1"}
	check := func(when string, generation uint64, want bool) {
		t.Helper()
		if got := s.Acknowledged("a", v["a"], generation); got != want {
			t.Errorf("%s: acknowledged is %v, want %v", when, got, want)
		}
	}
	v.handle(t, s, &request{ResourceNamesSubscribe: []string{"a"}})
	check("before it was sent", 5, false)
	v.next(s, "n1", 5)
	check("while it is on its way", 5, false)
	o := v.handle(t, s, &request{ResponseNonce: "n1"})
	check("after the answer", 5, true)
	v["a"] = "2"
	s.Changed("a")
	check("old generation, newer content", 5, true)
	check("new generation", 6, false)
	v.next(s, "n2", 6)
	n := v.handle(t, s, &request{ResponseNonce: "n2", ErrorDetail: &status.Status{Message: "no"}})
	check("after a rejection", 6, false)
	v["a"] = "1"
	check("back to what was accepted, but not sent again", 7, false)
	delete(v, "a")
	s.Changed("a")
	v.next(s, "n3", 8)
	check("removal on its way", 8, false)
	v.handle(t, s, &request{ResponseNonce: "n3"})
	check("removal acknowledged", 8, true)
	if o.Answer != delta.Ack || n.Answer != delta.Nack {
		t.Errorf("answers are %v and %v", o.Answer, n.Answer)
	}
}

func TestRemovedResourceIsForgottenOnceAcknowledged(t *testing.T) {
	s, v := delta.New(rules(true)), versions{"a": "1"}
	v.handle(t, s, &request{})
	v.next(s, "n1", 1)
	v.handle(t, s, &request{ResponseNonce: "n1"})
	delete(v, "a")
	s.Changed("a")
	v.next(s, "n2", 2)
	v.handle(t, s, &request{ResponseNonce: "n2"})
	if got := s.Claimed(); len(got) > 0 {
		t.Errorf("still remembers %v", got)
	}
}

func TestOverdueCountsFromTheUnansweredResponse(t *testing.T) {
	s, v := delta.New(rules(true)), versions{}
	v.handle(t, s, &request{})
	if got := s.Overdue(time.Unix(9, 0)); got != 0 {
		t.Errorf("before: %v", got)
	}
	v.next(s, "n1", 1) // at time 0
	if got := s.Overdue(time.Unix(9, 0)); got != 9*time.Second {
		t.Errorf("unanswered: %v", got)
	}
	v.handle(t, s, &request{ResponseNonce: "n1"})
	if got := s.Overdue(time.Unix(9, 0)); got != 0 {
		t.Errorf("answered: %v", got)
	}
}

package events_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"skipper/controller/events"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

const (
	info = skipperpb.EventSeverity_EVENT_SEVERITY_INFO
	warn = skipperpb.EventSeverity_EVENT_SEVERITY_WARN
)

func TestLogKeepsTheNewestAndNeverLosesWarningsToRoutine(t *testing.T) {
	l := events.NewLog(events.Config{ControllerIP: "10.0.0.1", Registerer: prometheus.NewRegistry()})
	add := func(n int, s skipperpb.EventSeverity, kind skipperpb.EventType) {
		for i := range n {
			l.Add(&skipperpb.Event{Type: kind, Severity: s, Message: fmt.Sprint(i)})
		}
	}
	add(300, warn, skipperpb.EventType_EVENT_TYPE_DRAIN_TIMEOUT)
	add(5000, info, skipperpb.EventType_EVENT_TYPE_POD_ASSIGNED)
	add(1, warn, skipperpb.EventType_EVENT_TYPE_MISCONFIGURED)
	got := l.Events()
	if len(got) != 1000 {
		t.Fatalf("%d events are kept, want 1000", len(got))
	}
	for i, e := range got {
		if i > 0 && e.GetSequence() <= got[i-1].GetSequence() {
			t.Fatalf("event %d follows %d", e.GetSequence(), got[i-1].GetSequence())
		}
	}
	if first, last := got[0].GetSequence(), got[999].GetSequence(); first != 102 || last != 5301 {
		t.Errorf("events %d to %d, want the 200 newest warnings (102 is the first of them) up to 5301", first, last)
	}
	if got[199].GetSequence() != 4501 {
		t.Errorf("oldest routine event is %d, want 4501: 800 of them are kept", got[199].GetSequence())
	}
}

func TestEventIsKeptWithoutWhatIsLongOrSecret(t *testing.T) {
	registry := prometheus.NewRegistry()
	var also *skipperpb.Event
	l := events.NewLog(events.Config{ControllerIP: "10.0.0.1", Also: func(e *skipperpb.Event) { also = e }, Registerer: registry})
	at := timestamppb.New(time.Unix(1700000000, 0))
	e := events.OfPod(pool.Pod{
		Namespace: "prod", Name: "echo-1", UID: "u1",
		Function: &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Metadata: "secret", Oneshot: true},
	}, skipperpb.EventType_EVENT_TYPE_ASSIGNMENT_REFUSED, warn, strings.Repeat("ä", 3000))
	e.Timestamp = at
	l.Add(e)
	got := l.Events()[0]
	if n := len(got.GetMessage()); n > 1024 || n < 1000 || !utf8.ValidString(got.GetMessage()) || !strings.HasSuffix(got.GetMessage(), "...") {
		t.Errorf("message has %d bytes and ends in %q", n, got.GetMessage()[n-5:])
	}
	got.Message = ""
	want := &skipperpb.Event{
		Timestamp: at, Type: skipperpb.EventType_EVENT_TYPE_ASSIGNMENT_REFUSED, Severity: warn,
		Function: &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Oneshot: true},
		Sequence: 1, ControllerIp: "10.0.0.1", InstanceName: "echo-1", InstanceUid: "u1",
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if !proto.Equal(also, got) {
		t.Errorf("others are told %v", also)
	}
	const series = 11 * 2 // types and severities
	if n := testutil.CollectAndCount(registry, "skipper_controller_events_total"); n != series {
		t.Errorf("%d series from the start, want %d", n, series)
	}
}

func TestEventOfAPodWhoseFunctionCannotBeReadNamesItsLabels(t *testing.T) {
	e := events.OfPod(pool.Pod{Namespace: "prod", Name: "echo-1", UID: "u1", Deployment: "echo", Tenant: "t"},
		skipperpb.EventType_EVENT_TYPE_POD_DELETED, info, "m")
	if f := e.GetFunction(); f.GetNamespace() != "prod" || f.GetDeployment() != "echo" || f.GetTenant() != "t" {
		t.Errorf("function %v", f)
	}
}

package events

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
)

// Bounds of what a Log remembers. Warnings have a place of their own, so that
// busy oneshots, which cause two events each, never push them out.
const (
	routineSize = 800
	warningSize = 200
	// maxMessage is the longest message in bytes; pods' answers may stand in it.
	// It is what the Kubernetes API takes.
	maxMessage = 1024
)

// Config of a Log. All fields are required unless marked optional.
type Config struct {
	// ControllerIP is this replica's.
	ControllerIP string
	// Also is told every event as the Log keeps it. Optional. It must be quick
	// and must not change it.
	Also       func(*skipperpb.Event)
	Registerer prometheus.Registerer
}

// Log holds the newest events of this replica. Safe for concurrent use.
type Log struct {
	cfg    Config
	counts *prometheus.CounterVec

	mu sync.Mutex
	// The fields below are guarded by mu.
	sequence          uint64
	routine, warnings ring
}

// NewLog returns an empty Log.
func NewLog(cfg Config) *Log {
	l := &Log{
		cfg: cfg, routine: ring{size: routineSize}, warnings: ring{size: warningSize},
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_events_total",
			Help: "Events that this replica has told, by type and severity; GetClusterState shows the newest of them.",
		}, []string{"type", "severity"}),
	}
	for n := range skipperpb.EventType_name {
		for _, s := range severities {
			if n != 0 {
				l.counts.WithLabelValues(labelOf(skipperpb.EventType(n)), labelOf(s))
			}
		}
	}
	cfg.Registerer.MustRegister(l.counts)
	return l
}

var severities = [...]skipperpb.EventSeverity{
	skipperpb.EventSeverity_EVENT_SEVERITY_INFO, skipperpb.EventSeverity_EVENT_SEVERITY_WARN,
}

// labelOf is an event's type or severity as a label value.
func labelOf(v protoreflect.Enum) string { return cmp.Or(skipperpb.Word(v), "unspecified") }

// Add remembers e, which is the Log's from then on. The time is now where e has
// none; who tells it, and its number, are set here. It never waits for anybody
// and may be called with locks held.
func (l *Log) Add(e *skipperpb.Event) {
	if e.GetTimestamp() == nil {
		e.Timestamp = timestamppb.Now()
	}
	e.Function = identityOf(e.GetFunction())
	e.Message = shorten(e.GetMessage())
	e.ControllerIp = l.cfg.ControllerIP
	l.counts.WithLabelValues(labelOf(e.GetType()), labelOf(e.GetSeverity())).Inc()
	l.keep(e)
	if l.cfg.Also != nil {
		l.cfg.Also(e)
	}
}

func (l *Log) keep(e *skipperpb.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sequence++
	e.Sequence = l.sequence
	if e.GetSeverity() == skipperpb.EventSeverity_EVENT_SEVERITY_WARN {
		l.warnings.put(e)
	} else {
		l.routine.put(e)
	}
}

// Events are those remembered, the oldest first. They are shared: read only.
func (l *Log) Events() []*skipperpb.Event {
	l.mu.Lock()
	out := slices.Concat(l.routine.events, l.warnings.events)
	l.mu.Unlock()
	slices.SortFunc(out, func(a, b *skipperpb.Event) int { return cmp.Compare(a.GetSequence(), b.GetSequence()) })
	return out
}

// identityOf leaves the metadata out, which is the function's own and may be
// long or secret.
func identityOf(f *skipperpb.Function) *skipperpb.Function {
	if f == nil {
		return nil
	}
	return &skipperpb.Function{
		Namespace: f.GetNamespace(), Deployment: f.GetDeployment(), Tenant: f.GetTenant(), Oneshot: f.GetOneshot(), Scale: f.GetScale(),
	}
}

// shorten cuts s where it is too long, never within a character.
func shorten(s string) string {
	if len(s) > maxMessage {
		const more = "..."
		s = s[:maxMessage-len(more)] + more
	}
	return strings.ToValidUTF8(s, "")
}

// ring is the newest events, in no order once it is full.
type ring struct {
	size   int
	events []*skipperpb.Event
	next   int // the oldest, when full
}

func (r *ring) put(e *skipperpb.Event) {
	if len(r.events) < r.size {
		r.events = append(r.events, e)
		return
	}
	r.events[r.next] = e
	r.next = (r.next + 1) % r.size
}

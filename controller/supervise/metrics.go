package supervise

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	skipperpb "skipper/proto"
)

type metrics struct {
	converges, panics, drains, stuck, orphans, rewrites prometheus.Counter
	decisions, growth, reassigns, replacements          *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, supervisors func() float64) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "skipper_controller_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skipper_controller_" + name, Help: help}, []string{label})
		r.MustRegister(c)
		return c
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skipper_controller_supervisors",
		Help: "Functions that are supervised, because they have instances or heartbeats.",
	}, supervisors))
	m := &metrics{
		converges:    counter("converges_total", "Rounds of supervisors."),
		panics:       counter("converge_panics_total", "Rounds of supervisors that ended in a panic; any is a bug."),
		drains:       counter("scale_down_instances_total", "Instances that were told to drain because there were too many."),
		stuck:        counter("stuck_instances_total", "Instances ended because they did not accept their assignment in time."),
		orphans:      counter("oneshot_orphans_total", "Oneshot pods ended because nobody released them."),
		rewrites:     counter("function_annotations_rewritten_total", "Instances whose annotation followed a change of scale."),
		decisions:    vec("scale_decisions_total", "Decisions on how many instances a function needs, by reason.", "reason"),
		reassigns:    vec("reassignments_total", "Instances whose container restarted, by what became of them.", "outcome"),
		replacements: vec("stale_replacements_total", "Stale instances by what became of them: replaced, or failed because no replacement was to be had.", "outcome"),
		growth:       vec("scale_up_instances_total", "Assignments made by supervisors, by outcome.", "outcome"),
	}
	m.initialise()
	return m
}

// initialise has every counter stand at 0 from the start.
func (m *metrics) initialise() {
	for n := range skipperpb.ScaleReason_name {
		m.decisions.WithLabelValues(reasonName(skipperpb.ScaleReason(n)))
	}
	for vec, values := range map[*prometheus.CounterVec][]string{
		m.reassigns: {"accepted", "deleted", "cut"}, m.replacements: {"replaced", "failed"}, m.growth: {"assigned", "failed"},
	} {
		for _, v := range values {
			vec.WithLabelValues(v)
		}
	}
}

// reasonName is the reason as a label value; none: an instance in use and no
// metric that asks for more.
func reasonName(r skipperpb.ScaleReason) string {
	return cmp.Or(skipperpb.Word(r), "none")
}

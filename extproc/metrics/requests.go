package metrics

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxShards bounds the memory of the counts below: about 1 KiB each.
const maxShards = 64

// requests counts what every request counts. Each core would wait for the line
// of memory that another has just written; so there are several copies, one is
// chosen at random for each event, and they are added up when metrics are
// gathered. Safe for concurrent use.
type requests struct {
	shards []shard
	mask   uint32
	descs  requestDescs
}

type shard struct {
	outcomes [outcomes]atomic.Uint64
	picks    [picks]atomic.Uint64
	ends     [ends]atomic.Uint64
	closed   atomic.Uint64
	decision [2]durations // warm, cold
	_        [64]byte     // keeps the next shard's counts off our last line
}

// durations is a histogram; the last bucket has no bound.
type durations struct {
	sum     atomic.Int64 // nanoseconds
	buckets [len(decisionBounds) + 1]atomic.Uint64
}

// decisionBounds are those of decision_seconds.
var decisionBounds = [...]time.Duration{
	time.Microsecond, 2 * time.Microsecond, 5 * time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond,
	time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

func newRequests(cores int) *requests {
	n := 1
	for n < cores && n < maxShards {
		n *= 2
	}
	return &requests{shards: make([]shard, n), mask: uint32(n - 1), descs: newRequestDescs()}
}

func (r *requests) shard() *shard { return &r.shards[rand.Uint32()&r.mask] }

func (d *durations) observe(took time.Duration) {
	i := 0
	for i < len(decisionBounds) && took > decisionBounds[i] {
		i++
	}
	d.buckets[i].Add(1)
	d.sum.Add(int64(took))
}

// cores is how many goroutines may count at the same time.
func cores() int { return runtime.GOMAXPROCS(0) }

type requestDescs struct{ streams, picks, ends, decision, open *prometheus.Desc }

func newRequestDescs() requestDescs {
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name(n), help, labels, nil)
	}
	return requestDescs{
		streams:  desc("streams_total", "Streams by what became of the request: one per HTTP request, and one more for each further pass (resent, if it was sent to an instance).", "outcome"),
		picks:    desc("picks_total", "Instances that requests were sent to, by who named them: the table, or the controller where the table had none. An instance that is tried again is not picked.", "source"),
		ends:     desc("stream_ends_total", "Ended streams by how they ended: over, lost (the count is kept as a lease) or turned (left to Envoy by a process that stops).", "end"),
		decision: desc("decision_seconds", "From the request headers to the answer that names an instance, warm (from the table) or cold (after a wait).", "path"),
		open:     desc("in_flight_requests", "Requests in progress on an instance, by open streams."),
	}
}

// Describe implements prometheus.Collector.
func (r *requests) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.descs.streams, r.descs.picks, r.descs.ends, r.descs.decision, r.descs.open} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (r *requests) Collect(c chan<- prometheus.Metric) {
	// Closed first: what ends meanwhile counts as open, rather than as less than nothing.
	closed := r.sum(func(s *shard) uint64 { return s.closed.Load() })
	counter := func(d *prometheus.Desc, labels []string, of func(*shard, int) *atomic.Uint64) {
		for i, label := range labels {
			n := r.sum(func(s *shard) uint64 { return of(s, i).Load() })
			c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
		}
	}
	sent := r.sum(func(s *shard) uint64 { return s.outcomes[Warm].Load() + s.outcomes[Cold].Load() })
	c <- prometheus.MustNewConstMetric(r.descs.open, prometheus.GaugeValue, float64(sent-closed))
	counter(r.descs.streams, outcomeLabels[:], func(s *shard, i int) *atomic.Uint64 { return &s.outcomes[i] })
	counter(r.descs.picks, pickLabels[:], func(s *shard, i int) *atomic.Uint64 { return &s.picks[i] })
	counter(r.descs.ends, endLabels[:], func(s *shard, i int) *atomic.Uint64 { return &s.ends[i] })
	for path, label := range []string{"warm", "cold"} {
		c <- r.histogram(path, label)
	}
}

func (r *requests) histogram(path int, label string) prometheus.Metric {
	count, below := uint64(0), map[float64]uint64{}
	for i := range len(decisionBounds) + 1 {
		count += r.sum(func(s *shard) uint64 { return s.decision[path].buckets[i].Load() })
		if i < len(decisionBounds) {
			below[decisionBounds[i].Seconds()] = count
		}
	}
	total := time.Duration(0)
	for i := range r.shards {
		total += time.Duration(r.shards[i].decision[path].sum.Load())
	}
	return prometheus.MustNewConstHistogram(r.descs.decision, count, total.Seconds(), below, label)
}

func (r *requests) sum(of func(*shard) uint64) uint64 {
	total := uint64(0)
	for i := range r.shards {
		total += of(&r.shards[i])
	}
	return total
}

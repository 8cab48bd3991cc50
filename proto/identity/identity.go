package identity

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// DefaultEvery is how often files are read again: soon against the minute that
// a kubelet takes to bring a changed Secret into a pod.
const DefaultEvery = 5 * time.Second

// Options of Open.
type Options struct {
	Files Files
	// Role is the one that the certificate must have. Required.
	Role Role
	// Every is the time between two looks at the files; 0 is DefaultEvery.
	Every time.Duration
	// Logger; nil logs nothing.
	Logger *zap.Logger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// Identity is what a process shows and whom it trusts, as of the last good
// reading of its files. Use Open and then Run; safe for concurrent use.
type Identity struct {
	opts    Options
	current atomic.Pointer[material]
	metrics *metrics

	// Of the goroutine of Run.
	seen   contents
	broken string // the problem that was logged last; "" for none
}

// Open reads the files once, and returns an error if they cannot be used or are
// another role's.
func Open(o Options) (*Identity, error) {
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.Logger = o.Logger.Named("identity")
	i := &Identity{opts: o, metrics: newMetrics(o.Registerer)}
	if _, err := i.reload(); err != nil {
		return nil, err
	}
	return i, nil
}

// FromPEM is an identity that stays what the texts say: for a process that was
// given them otherwise than in files, and for a short time. Run has no use.
func FromPEM(role Role, cert, key, ca []byte) (*Identity, error) {
	i := &Identity{opts: Options{Role: role, Logger: zap.NewNop()}, metrics: newMetrics(nil)}
	if _, err := i.take(contents{cert, key, ca}); err != nil {
		return nil, err
	}
	return i, nil
}

// Run reads the files again and again until ctx ends. Files that cannot be used
// are said in the log once and counted, and change nothing.
func (i *Identity) Run(ctx context.Context) error {
	tick := time.NewTicker(i.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			i.look()
		}
	}
}

// Expires is when the certificate in use ends.
func (i *Identity) Expires() time.Time { return i.current.Load().cert.Leaf.NotAfter }

func (i *Identity) look() {
	changed, err := i.reload()
	if err != nil {
		i.metrics.failures.Inc()
		if i.broken != err.Error() {
			i.opts.Logger.Error("TLS files cannot be used: the last good ones stay in use", zap.Error(err), zap.Time("expires", i.Expires()))
		}
		i.broken = err.Error()
		return
	}
	i.broken = ""
	if changed {
		i.metrics.reloads.Inc()
		leaf := i.current.Load().cert.Leaf
		i.opts.Logger.Info("TLS files changed: the next connection uses them",
			zap.String("serial", leaf.SerialNumber.Text(16)), zap.Time("expires", leaf.NotAfter))
	}
}

// reload takes over what the files hold if that is new and good.
func (i *Identity) reload() (changed bool, err error) {
	c, err := i.opts.Files.read()
	if err != nil || c.equal(i.seen) {
		return false, err
	}
	return i.take(c)
}

func (i *Identity) take(c contents) (changed bool, err error) {
	m, err := c.parse()
	if err != nil {
		return false, err
	}
	if m.role != i.opts.Role {
		return false, fmt.Errorf("use TLS certificate %s: %w: it is %s, want %s", i.opts.Files.Cert, ErrRole, m.role, i.opts.Role)
	}
	i.seen = c
	i.current.Store(m)
	i.metrics.expires.Set(float64(m.cert.Leaf.NotAfter.Unix()))
	return true, nil
}

type metrics struct {
	expires  prometheus.Gauge
	reloads  prometheus.Counter
	failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		expires: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skipper_tls_certificate_expires_timestamp_seconds",
			Help: "When our own TLS certificate ends, as seconds since 1970.",
		}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skipper_tls_reloads_total",
			Help: "Times that changed TLS files were taken over.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skipper_tls_reload_failures_total",
			Help: "Times that TLS files could not be used; the last good ones stay in use.",
		}),
	}
	if r != nil {
		r.MustRegister(m.expires, m.reloads, m.failures)
	}
	return m
}

package trust

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"skipper/proto/identity"
)

// A refusal is logged once a second at most in the long run, after a first few.
const (
	linesEvery = time.Second
	linesBurst = 5
)

// quiet is a logger that leaves lines out when there are too many, and says in
// the next one how many. Safe for concurrent use.
type quiet struct {
	logger *zap.Logger
	limit  *rate.Limiter
	left   atomic.Int64
}

func newQuiet(l *zap.Logger) *quiet {
	return &quiet{logger: l, limit: rate.NewLimiter(rate.Every(linesEvery), linesBurst)}
}

func (q *quiet) warn(message string, fields ...zap.Field) {
	if !q.limit.Allow() {
		q.left.Add(1)
		return
	}
	q.logger.Warn(message, append(fields, zap.Int64("left_out", q.left.Swap(0)))...)
}

type metrics struct {
	refused *prometheus.CounterVec
	denied  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_tls_refused_total",
			Help: "Connections to the gRPC port that failed their TLS handshake, by cause.",
		}, []string{"cause"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_denied_calls_total",
			Help: "Calls that the caller's role may not make, by method and role.",
		}, []string{"method", "role"}),
	}
	for _, c := range []string{causeNone, causeAuthority, causeExpired, causeInvalid, causeRole, causeNotTLS, causeClosed, causeOther} {
		m.refused.WithLabelValues(c)
	}
	for method, may := range methods() {
		for _, role := range identity.Roles() {
			if !slices.Contains(may, role) {
				m.denied.WithLabelValues(method, string(role))
			}
		}
	}
	r.MustRegister(m.refused, m.denied)
	return m
}

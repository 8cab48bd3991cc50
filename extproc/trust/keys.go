package trust

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/proto/reason"
	"skipper/proto/signed"

	"skipper/extproc/header"
)

// DefaultEvery is how often the files are read again, as those of TLS are.
const DefaultEvery = 5 * time.Second

// KeysOptions are those of OpenKeys.
type KeysOptions struct {
	// Files of public keys, PEM; each may hold several. At least one.
	Files []string
	// Audience is what the tokens must be meant for.
	Audience string
	// Tokens is about how many verified tokens are remembered.
	Tokens int
	// Every is the time between two looks at the files; 0 is DefaultEvery.
	Every      time.Duration
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// Keys verify tokens by the keys of the last good reading of the files. Use
// OpenKeys and then Run; safe for concurrent use.
type Keys struct {
	opts    KeysOptions
	current atomic.Pointer[keySet]
	metrics *keyMetrics

	// Of the goroutine of Run.
	seen   [][]byte
	broken string // the problem that was logged last; "" for none
}

// keySet is one set of keys and what they have verified.
type keySet struct {
	keys     []ed25519.PublicKey
	audience string
	metrics  *keyMetrics
	verified *header.Cache
	verify   func([]byte) (header.Meaning, error)
}

// OpenKeys reads the files once; the error says which cannot be used.
func OpenKeys(o KeysOptions) (*Keys, error) {
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if len(o.Files) == 0 {
		return nil, errors.New("read function keys: no file is named")
	}
	k := &Keys{opts: o, metrics: newKeyMetrics(o.Registerer)}
	if _, err := k.reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// Run reads the files again and again until ctx ends. Files that cannot be used
// are said in the log once and counted, and change nothing.
func (k *Keys) Run(ctx context.Context) error {
	tick := time.NewTicker(k.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			k.look()
		}
	}
}

func (k *Keys) look() {
	changed, err := k.reload()
	if err != nil {
		k.metrics.failures.Inc()
		if k.broken != err.Error() {
			k.opts.Logger.Error("function keys cannot be used: the last good ones stay in use", zap.Error(err))
		}
		k.broken = err.Error()
		return
	}
	k.broken = ""
	if changed {
		k.metrics.reloads.Inc()
		k.opts.Logger.Info("function keys changed: tokens are verified anew", zap.Int("keys", len(k.current.Load().keys)))
	}
}

// reload takes over what the files hold if that is new and good.
func (k *Keys) reload() (changed bool, err error) {
	var texts [][]byte
	var keys []ed25519.PublicKey
	for _, file := range k.opts.Files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("read function keys: %w", err)
		}
		more, err := signed.ParsePublicKeys(text)
		if err != nil {
			return false, fmt.Errorf("read function keys of %s: %w", file, err)
		}
		texts, keys = append(texts, text), append(keys, more...)
	}
	if slices.EqualFunc(texts, k.seen, bytes.Equal) {
		return false, nil
	}
	k.seen = texts
	set := &keySet{keys: keys, audience: k.opts.Audience, metrics: k.metrics, verified: header.NewCache(k.opts.Tokens)}
	set.verify = set.open
	k.current.Store(set)
	k.metrics.keys.Set(float64(len(keys)))
	return true, nil
}

// read returns the function of a token that holds at now. k may be nil.
func (k *Keys) read(raw []byte, now time.Time) (*header.Function, error) {
	if k == nil {
		return nil, &Error{reason.TokenInvalid, "signed functions are not taken here: send the function as JSON, or have --function-public-keys set"}
	}
	set := k.current.Load()
	m, err := set.verified.Read(raw, set.verify)
	if err != nil {
		return nil, err
	}
	if now.Before(m.From) || !now.Before(m.Until) {
		return nil, set.outOfTime(m, now)
	}
	return m.Function, nil
}

// open verifies a token and reads the function in it. When it holds is left to
// whoever asks.
func (s *keySet) open(raw []byte) (header.Meaning, error) {
	c, err := signed.Verify(s.keys, string(raw))
	if err == nil {
		err = c.Check(s.audience, c.NotBefore)
	}
	if err != nil {
		s.metrics.invalid.Inc()
		return header.Meaning{}, &Error{reason.TokenInvalid, err.Error()}
	}
	s.metrics.valid.Inc()
	m, err := header.Parse([]byte(c.Function))
	if err != nil {
		return header.Meaning{}, err
	}
	m.From, m.Until = c.NotBefore, c.Expires
	return m, nil
}

func (s *keySet) outOfTime(m header.Meaning, now time.Time) error {
	err := signed.Claims{Audience: s.audience, NotBefore: m.From, Expires: m.Until}.Check(s.audience, now)
	if errors.Is(err, signed.ErrExpired) {
		return &Error{reason.TokenExpired, err.Error() + ": have the function signed anew"}
	}
	return &Error{reason.TokenInvalid, err.Error()}
}

type keyMetrics struct {
	keys              prometheus.Gauge
	reloads, failures prometheus.Counter
	valid, invalid    prometheus.Counter
}

func newKeyMetrics(r prometheus.Registerer) *keyMetrics {
	verified := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skipper_extproc_token_verifications_total",
		Help: "Signatures of function tokens that were verified, by outcome: valid, or invalid (no key of ours, another audience, not readable). A token that is remembered is not verified again.",
	}, []string{"outcome"})
	m := &keyMetrics{
		keys:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "skipper_extproc_function_keys", Help: "Public keys by which function tokens are verified."}),
		reloads:  prometheus.NewCounter(prometheus.CounterOpts{Name: "skipper_extproc_function_key_reloads_total", Help: "Times that changed files of public keys were taken over."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "skipper_extproc_function_key_reload_failures_total", Help: "Times that files of public keys could not be used; the last good ones stay in use."}),
		valid:    verified.WithLabelValues("valid"), invalid: verified.WithLabelValues("invalid"),
	}
	r.MustRegister(m.keys, m.reloads, m.failures, verified)
	return m
}

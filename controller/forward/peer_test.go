package forward

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Only a peer that was asked, and whose answer we were awake to hear, is dead.
func TestJudge(t *testing.T) {
	const dead = DefaultDeadAfter
	for name, row := range map[string]struct {
		asked, heard time.Duration // ago
		overslept    bool
		want         bool
	}{
		"silent since the call":            {asked: dead, heard: dead, want: true},
		"silent for longer than the call":  {asked: dead / 2, heard: 2 * dead},
		"heard since":                      {asked: 2 * dead, heard: dead - 1},
		"we overslept":                     {asked: 2 * dead, heard: 2 * dead, overslept: true},
		"nothing is asked of it, so be it": {asked: -1, heard: 2 * dead},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			ended := false
			p := &peer{
				cfg:   PeersConfig{DeadAfter: dead, Metrics: NewMetrics(prometheus.NewRegistry()), Log: zap.NewNop()},
				calls: map[*lease]struct{}{}, heard: now.Add(-row.heard),
			}
			if row.asked >= 0 {
				p.calls[&lease{since: now.Add(-row.asked), cancel: func(error) { ended = true }}] = struct{}{}
			}
			p.judge(now, row.overslept)
			if p.silent != row.want || ended != row.want {
				t.Errorf("silent %v, call ended %v, want %v", p.silent, ended, row.want)
			}
		})
	}
}

// After an oversleep a peer that stays silent is dead all the same, a little later.
func TestOversleptIsNoPardon(t *testing.T) {
	now := time.Now()
	p := &peer{
		cfg:   PeersConfig{DeadAfter: DefaultDeadAfter, Metrics: NewMetrics(prometheus.NewRegistry()), Log: zap.NewNop()},
		calls: map[*lease]struct{}{{since: now.Add(-time.Minute), cancel: func(error) {}}: {}}, heard: now.Add(-time.Minute),
	}
	p.judge(now, true)
	if p.judge(now.Add(DefaultDeadAfter/2-1), false); p.silent {
		t.Error("dead before half its time has passed")
	}
	if p.judge(now.Add(DefaultDeadAfter/2), false); !p.silent {
		t.Error("not dead after half its time")
	}
}

func TestAsk(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, row := range []struct {
		name string
		p    *peer
		n    int
		want bool
	}{
		{"at rest", &peer{}, 2, true},
		{"at rest, the period between", &peer{}, 3, false},
		{"a call waits", &peer{calls: map[*lease]struct{}{{}: {}}}, 3, true},
		{"a probe waits", &peer{asked: now.Add(-1)}, 3, true},
		{"silent", &peer{silent: true}, 3, true},
	} {
		before := row.p.asked
		if got := row.p.ask(row.n, now); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
		if got := row.p.asked; row.want && before.IsZero() && got != now || !before.IsZero() && got != before || !row.want && !got.IsZero() {
			t.Errorf("%s: asked at %v", row.name, got)
		}
	}
}

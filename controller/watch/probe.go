package watch

import (
	"context"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/pool"
)

const (
	// probeEvery is the pause between two questions to the API server how far
	// it is.
	probeEvery = 30 * time.Second
	// probeLook is how often the informer is looked at meanwhile.
	probeLook = time.Second
	// probeSettle is how long handlers may take to be told of what an informer
	// has got to, after a new list of 50,000 pods too.
	probeSettle = 5 * time.Second
	// probeTimeout bounds one question.
	probeTimeout = 10 * time.Second
	// frozenAfter is how long an informer may take to get there. An event takes
	// milliseconds; where none is due, it learns from a bookmark, which API
	// servers send about once a minute.
	frozenAfter = 150 * time.Second
)

// freshness is what is known of how up to date an informer is. Pure.
type freshness struct {
	wanted  uint64    // version that the informer has to get to; 0: none
	askedAt time.Time // when the API server was there
	freshAt time.Time // a time up to which the informer has shown everything
	frozen  bool
}

// ask takes in that the API server was at a version at the given time. What
// cannot be read as a number is believed to be shown.
func (f *freshness) ask(version string, at time.Time) {
	f.askedAt = at
	f.wanted, _ = strconv.ParseUint(version, 10, 64) // 0 where it is none
}

// look takes in how far the informer is. It returns whether it has got there.
func (f *freshness) look(version string, now time.Time) (reached bool) {
	at, err := strconv.ParseUint(version, 10, 64)
	if f.wanted == 0 || err != nil || at >= f.wanted {
		f.frozen = false
		return true
	}
	f.frozen = f.frozen || now.Sub(f.askedAt) > frozenAfter
	return false
}

// confirm takes in that handlers have been told of what the informer got to.
func (f *freshness) confirm() { f.freshAt = f.askedAt }

// probe follows how fresh one informer is. Safe for concurrent use.
type probe struct {
	namespace string
	informer  func() string // version that it has got to

	mu    sync.Mutex
	state freshness // guarded by mu
}

func (w *Watch) newProbe(namespace string, informer func() string) *probe {
	return &probe{namespace: namespace, informer: informer}
}

// watchOver asks and looks until the context ends. A question that is not
// answered says nothing: without the API server nothing changes either.
func (w *Watch) watchOver(ctx context.Context, p *probe) {
	if w.WaitSynced(ctx) != nil {
		return
	}
	p.start(time.Now())
	for {
		if version, at, err := w.askVersion(ctx, p.namespace); err != nil {
			w.log.Debug("ask how far the API server is", zap.String("namespace", p.namespace), zap.Error(err))
		} else if !w.untilReached(ctx, p, version, at) {
			return
		}
		if !pause(ctx, probeEvery) {
			return
		}
	}
}

// start takes the informer's first list for fresh.
func (p *probe) start(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.freshAt = now
}

// askVersion costs the API server one read of at most one pod.
func (w *Watch) askVersion(ctx context.Context, namespace string) (version string, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	at = time.Now()
	list, err := w.cfg.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: pool.LabelDeployment})
	if err != nil {
		return "", at, err
	}
	return list.ResourceVersion, at, nil
}

// untilReached looks until the informer is there; false if the context ended.
func (w *Watch) untilReached(ctx context.Context, p *probe, version string, at time.Time) bool {
	p.mu.Lock()
	p.state.ask(version, at)
	p.mu.Unlock()
	for !w.look(p) {
		if !pause(ctx, probeLook) {
			return false
		}
	}
	if !pause(ctx, probeSettle) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.confirm()
	return true
}

func (w *Watch) look(p *probe) (reached bool) {
	now, informer := time.Now(), p.informer()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.state.frozen
	reached = p.state.look(informer, now)
	switch {
	case p.state.frozen && !was:
		w.log.Error("watch of function pods is frozen: this replica decides nothing from it until it moves", zap.String("namespace", p.namespace),
			zap.String("at", informer), zap.Uint64("behind", p.state.wanted), zap.Duration("for", now.Sub(p.state.askedAt)))
	case was && !p.state.frozen:
		w.log.Info("watch of function pods moves again", zap.String("namespace", p.namespace))
	}
	return reached
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Frozen says that an informer of function pods has stopped to show what the
// API server knows.
func (w *Watch) Frozen() bool {
	for _, p := range w.probes {
		p.mu.Lock()
		frozen := p.state.frozen
		p.mu.Unlock()
		if frozen {
			return true
		}
	}
	return false
}

// FreshAt is a time up to which all that the API server knew of function pods
// has been shown; zero before the first lists are.
func (w *Watch) FreshAt() time.Time {
	var oldest time.Time
	for i, p := range w.probes {
		p.mu.Lock()
		at := p.state.freshAt
		p.mu.Unlock()
		if i == 0 || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

package watch

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestFreshness(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		api, informer   string
		after           time.Duration
		reached, frozen bool
	}{
		"there":                        {"100", "100", 0, true, false},
		"further":                      {"100", "120", 0, true, false},
		"versions are numbers":         {"99", "100", 0, true, false},
		"on its way":                   {"100", "99", time.Minute, false, false},
		"late, but a bookmark is due":  {"100", "99", frozenAfter, false, false},
		"frozen":                       {"100", "99", frozenAfter + 1, false, true},
		"late and there at last":       {"100", "100", time.Hour, true, false},
		"API server without versions":  {"", "", time.Hour, true, false},
		"informer without versions":    {"100", "", time.Hour, true, false},
		"versions that are no numbers": {"abc", "7", time.Hour, true, false},
	} {
		var f freshness
		f.ask(row.api, start)
		reached := f.look(row.informer, start.Add(row.after))
		if reached != row.reached || f.frozen != row.frozen || !f.freshAt.IsZero() {
			t.Errorf("%s: reached %v, %+v", name, reached, f)
		}
		if f.confirm(); !f.freshAt.Equal(start) {
			t.Errorf("%s: confirmed as of %v", name, f.freshAt)
		}
	}
}

// versions are those of an API server and an informer, set by the test.
type versions struct {
	mu       sync.Mutex
	api      uint64
	informer uint64
	down     bool
}

func (v *versions) set(f func(*versions)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v)
}

func (v *versions) list(k8stesting.Action) (bool, runtime.Object, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return true, nil, errors.New("down")
	}
	return true, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(v.api, 10)}}, nil
}

func (v *versions) shown() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strconv.FormatUint(v.informer, 10)
}

func startProbe(t *testing.T, v *versions) *Watch {
	t.Helper()
	api := fake.NewClientset()
	api.PrependReactor("list", "pods", v.list)
	w := &Watch{cfg: Config{Client: api}, log: zap.NewNop()}
	w.metrics = newMetrics(prometheus.NewRegistry(), w.Frozen)
	w.probes = []*probe{w.newProbe("prod", v.shown)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.watchOver(ctx, w.probes[0]) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w
}

func rest(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func TestWatchThatStandsStillIsFrozenUntilItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{api: 5, informer: 5}
		w := startProbe(t, v)
		rest(time.Minute)
		began := time.Now()
		if at := w.FreshAt(); began.Sub(at) > probeEvery+probeSettle+2*probeLook || w.Frozen() {
			t.Errorf("a watch that keeps up is fresh as of %v ago, frozen %v", began.Sub(at), w.Frozen())
		}
		v.set(func(v *versions) { v.api = 9 })
		rest(frozenAfter + probeEvery + probeSettle + 2*probeLook)
		if !w.Frozen() || w.FreshAt().After(began) {
			t.Errorf("frozen %v, fresh as of %v after the last event", w.Frozen(), w.FreshAt().Sub(began))
		}
		v.set(func(v *versions) { v.informer = 9 })
		rest(probeLook)
		if w.Frozen() {
			t.Error("frozen although it moves")
		}
		rest(2 * probeEvery)
		if !w.FreshAt().After(began) {
			t.Error("not fresh although it moves")
		}
	})
}

func TestAPIServerThatIsDownFreezesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{api: 5, informer: 5}
		w := startProbe(t, v)
		rest(time.Second)
		v.set(func(v *versions) { v.down = true })
		down := time.Now()
		rest(time.Hour)
		if w.Frozen() || w.FreshAt().After(down) {
			t.Errorf("frozen %v, fresh as of %v after it went down", w.Frozen(), w.FreshAt().Sub(down))
		}
	})
}

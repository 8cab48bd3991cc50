package supervise

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// schedule is ten minutes in which anything may happen to a few functions.
type schedule struct {
	*world
	rnd       *rand.Rand
	functions []*skipperpb.Function // as their callers know them now
	revision  int
	spare     int
}

// TestRandomSchedules holds that no function ever has more than one instance
// above its maximum, that no more replacements than allowed are under way, and
// that once everything works again nothing stale is left and every place is free.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			s := &schedule{world: setup(t), rnd: rand.New(rand.NewPCG(seed, 7))}
			s.allow(3)
			for i := range 8 {
				s.functions = append(s.functions, function(fmt.Sprint("t", i), uint32(i%2), 1+uint32(i%3), 2))
			}
			s.roll()
			for range 600 {
				s.step()
				advance(time.Second)
				s.check(seed)
			}
			s.settle(seed)
		})
	}
}

func (s *schedule) step() {
	f := s.functions[s.rnd.IntN(len(s.functions))]
	switch s.rnd.IntN(40) {
	case 0:
		s.roll()
	case 1, 2:
		f.Metadata = fmt.Sprint("v", s.rnd.IntN(3))
	case 3:
		s.set(func() { s.fails = s.maybe("no API server") })
	case 4:
		s.set(func() { s.replaceFails = s.maybe("pods refuse") })
	case 5:
		s.set(func() { s.replacePanics = s.rnd.IntN(3) == 0 })
	case 6:
		s.set(func() { s.takes, s.replaceTakes = s.upTo(20), s.upTo(20) })
	case 7, 8:
		if all := s.view.Instances(fn.KeyOf(f)); len(all) > 0 {
			s.view.Remove("prod", all[s.rnd.IntN(len(all))].UID, 0)
		}
	case 9:
		s.supply(s.rnd.IntN(5))
	default:
		s.beat(changed(f, func(*skipperpb.Function) {}), uint32(s.rnd.IntN(8)), nil)
	}
}

func (s *schedule) maybe(text string) error {
	if s.rnd.IntN(3) == 0 {
		return errors.New(text)
	}
	return nil
}

func (s *schedule) upTo(seconds int) time.Duration {
	return time.Duration(s.rnd.IntN(seconds)) * time.Second
}

// roll makes another ReplicaSet the only active one.
func (s *schedule) roll() {
	s.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: fmt.Sprint("rs", s.revision), Deployment: "echo", Revision: int64(s.revision)})
	s.revision++
	s.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: s.newest(), Deployment: "echo", Revision: int64(s.revision), Replicas: 5})
	s.supply(5)
}

func (s *schedule) newest() string { return fmt.Sprint("rs", s.revision) }

// supply adds pods of the active ReplicaSet to the pool.
func (s *schedule) supply(n int) {
	for range n {
		s.spare++
		p := assigned(s.functions[0], fmt.Sprintf("spare-%04d", s.spare), time.Time{})
		p.Function, p.Key, p.Marked, p.Tenant = nil, fn.Key{}, false, ""
		p.ReplicaSet, p.OwnedByReplicaSet = s.newest(), true
		s.view.Apply(p)
	}
}

func (s *schedule) check(seed uint64) {
	s.t.Helper()
	for _, f := range s.functions {
		if n := len(active(s.view.Instances(fn.KeyOf(f)))); n > int(f.GetScale().GetMaxInstances())+1 {
			s.t.Fatalf("seed %d: %s has %d instances, at most %d and one more may be", seed, f.GetTenant(), n, f.GetScale().GetMaxInstances())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busiest > 3 {
		s.t.Fatalf("seed %d: %d replacements at once, 3 are allowed", seed, s.busiest)
	}
}

// settle lets everything work again.
func (s *schedule) settle(seed uint64) {
	s.t.Helper()
	s.set(func() { s.fails, s.replaceFails, s.replacePanics, s.takes, s.replaceTakes = nil, nil, false, 0, 0 })
	for range 40 {
		s.supply(5)
		for _, f := range s.functions {
			s.beat(changed(f, func(*skipperpb.Function) {}), 1, nil)
		}
		advance(5 * time.Second)
	}
	sets := s.view.ReplicaSets("prod", "echo")
	for _, f := range s.functions {
		all := active(s.view.Instances(fn.KeyOf(f)))
		if old := staleOf(all, sets, f, time.Now()); len(all) == 0 || len(old) > 0 {
			s.t.Errorf("seed %d: %s has %d instances, %d of them stale: %v", seed, f.GetTenant(), len(all), len(old), old)
		}
	}
	s.Supervisors.mu.Lock()
	defer s.Supervisors.mu.Unlock()
	if s.replacing != 0 || s.growing != 0 {
		s.t.Errorf("seed %d: %d replacements and %d assignments under way", seed, s.replacing, s.growing)
	}
}

package pick

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"

	"skipper/extproc/header"
	"skipper/extproc/table"
)

// allowed is a naive reading of the rules: every instance that may be taken.
func allowed(all []*table.Instance, w Want) map[string]bool {
	newestFew := all
	if w.Limit > 0 && int(w.Limit) < len(all) {
		newestFew = all[:w.Limit]
	}
	for _, quarantineToo := range []bool{false, true} {
		for _, from := range [][]*table.Instance{newestFew, all} {
			out := map[string]bool{}
			for _, i := range from {
				if !slices.Contains(w.Not, i.UID) && (quarantineToo || !i.Quarantined(w.Now)) {
					out[i.UID] = true
				}
			}
			if len(out) > 0 {
				return out
			}
		}
	}
	return nil
}

func TestOnlyWhatIsWantedIsTaken(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	now := time.Now()
	for range 1000 {
		n := r.IntN(8)
		f := filled(t, n)
		w := Want{Limit: uint32(r.IntN(6)), Now: now}
		for _, i := range f.View().Instances {
			if r.IntN(3) == 0 {
				i.Fail(now, time.Minute)
				i.Fail(now, time.Minute)
			}
			if r.IntN(3) == 0 {
				w.Not = append(w.Not, i.UID)
			}
		}
		want := allowed(f.View().Instances, w)
		l, ok := Acquire(f, w, r.Uint64)
		if ok != (len(want) > 0) || ok && !want[l.Instance.UID] {
			t.Fatalf("picked %v of %d for %+v, allowed are %v", l.Instance, n, w, want)
		}
	}
}

// shifting is a function whose pods change while requests pick.
type shifting struct {
	table *table.Table
	h     *header.Function
	f     *table.Function
}

func newShifting() *shifting {
	h := header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Scale: &skipperpb.Scale{MaxInstances: 3}})
	s := &shifting{table: table.New(table.Options{Now: time.Now()}), h: h}
	s.f = s.table.Function(h)
	return s
}

// push leaves the pods with the given numbers.
func (s *shifting) push(version int, pods ...int) {
	m := &skipperpb.FunctionInstances{Name: s.h.Name, Version: uint64(version)}
	for _, n := range pods {
		m.Instances = append(m.Instances, &skipperpb.Instance{
			Uid: fmt.Sprint(n), Addr: "10.0.0.1:80", Cluster: "c", Version: uint64(n), AssignedAt: timestamppb.New(time.Unix(int64(n), 0)),
		})
	}
	s.table.Push(m, time.Now())
}

// TestRemovalBetweenChoiceAndCount removes pods, and adds one, after the view was
// read and before the request is counted.
func TestRemovalBetweenChoiceAndCount(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 500 {
		s := newShifting()
		s.push(10, 1, 2, 3, 4)
		kept, removals := []int{1, 2, 3, 4}, r.IntN(4)
		version := 10
		l, ok := Acquire(s.f, Want{Limit: uint32(r.IntN(4))}, func() uint64 {
			if removals--; removals >= 0 {
				version++
				kept = append(slices.Delete(kept, 0, min(2, len(kept))), version)
				s.push(version, kept...)
			}
			return r.Uint64()
		})
		if !ok {
			t.Fatal("nothing was picked, though there were always pods")
		}
		if !slices.ContainsFunc(kept, func(n int) bool { return fmt.Sprint(n) == l.Instance.UID }) {
			t.Fatalf("picked %s, which the acknowledged push had removed; left are %v", l.Instance.UID, kept)
		}
		if n := s.table.Usage(time.Now())[0]; n.Total != 1 || n.InFlight[l.Instance.UID] != 1 {
			t.Fatalf("%v in flight, want the one request on %s", n.InFlight, l.Instance.UID)
		}
	}
}

// TestNoPickFollowsAnAcknowledgedRemoval races requests with pushes. A pod's count
// as it stands after the push that removed it is never exceeded later: whoever was
// about to pick it is counted by then, or picks another.
func TestNoPickFollowsAnAcknowledgedRemoval(t *testing.T) {
	s := newShifting()
	s.push(1, 1)
	var removed atomic.Int64 // pods up to this one are gone, acknowledged
	stop := make(chan struct{})
	var requests sync.WaitGroup
	for range 3 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := removed.Load()
				l, ok := Acquire(s.f, Want{Limit: 2}, rand.Uint64)
				if ok && l.Instance.Version <= uint64(before) {
					t.Errorf("%s was picked after its removal was acknowledged", l.Instance.UID)
				}
				l.Release()
			}
		})
	}
	for n := 2; n < 500; n++ {
		s.push(n, n, n+1)
		removed.Store(int64(n - 1))
	}
	close(stop)
	requests.Wait()
	if n := s.table.Usage(time.Now())[0].Total; n != 0 {
		t.Errorf("%d in flight after the end", n)
	}
}

package pick

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"

	"skipper/extproc/header"
	"skipper/extproc/table"
)

// filled is a function with pods 1 to n; the highest is the newest.
func filled(t testing.TB, n int) *table.Function {
	t.Helper()
	return placed(t, n, "")
}

// placed is like filled, for a process in the zone, with the first pods in zones.
func placed(t testing.TB, n int, zone string, zones ...string) *table.Function {
	t.Helper()
	h := header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Scale: &skipperpb.Scale{MaxInstances: 3}})
	tab := table.New(table.Options{Now: time.Now(), Zone: zone})
	f := tab.Function(h)
	m := &skipperpb.FunctionInstances{Name: h.Name, Version: 100}
	for i := range n {
		one := &skipperpb.Instance{
			Uid: fmt.Sprintf("uid-%d", i+1), Addr: "10.0.0.1:80", Cluster: "c", Version: 1, AssignedAt: timestamppb.New(time.Unix(int64(i), 0)),
		}
		if i < len(zones) {
			one.Zone = zones[i]
		}
		m.Instances = append(m.Instances, one)
	}
	tab.Push(m, time.Now())
	return f
}

func counts(f *table.Function) map[string]int64 {
	out := map[string]int64{}
	for _, i := range f.View().Instances {
		out[i.UID] = i.InFlight()
	}
	return out
}

func TestNothingToPick(t *testing.T) {
	if l, ok := Acquire(filled(t, 0), Want{}, rand.Uint64); ok || l.Instance != nil {
		t.Errorf("got %v from nothing", l)
	}
}

func TestLoadIsSpread(t *testing.T) {
	f := filled(t, 10)
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		if _, ok := Acquire(f, Want{Limit: 0}, r.Uint64); !ok {
			t.Fatal("nothing was picked")
		}
	}
	for uid, n := range counts(f) {
		if n < 90 || n > 110 { // two choices keep the spread within a few requests
			t.Errorf("%s has %d of 1000 requests on 10 pods", uid, n)
		}
	}
}

func TestTheLessLoadedOfTwoIsPicked(t *testing.T) {
	f := filled(t, 2)
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		if _, ok := Acquire(f, Want{Limit: 0}, r.Uint64); !ok {
			t.Fatal("nothing was picked")
		}
	}
	for uid, n := range counts(f) {
		if n != 50 {
			t.Errorf("%s has %d of 100 requests on 2 pods", uid, n)
		}
	}
}

func TestOnlyTheNewestTakePart(t *testing.T) {
	f := filled(t, 5)
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		if _, ok := Acquire(f, Want{Limit: 2}, r.Uint64); !ok {
			t.Fatal("nothing was picked")
		}
	}
	for uid, n := range counts(f) {
		if want := int64(50); (uid == "uid-5" || uid == "uid-4") != (n == want) {
			t.Errorf("%s has %d requests", uid, n)
		}
	}
}

// TestChooseAgreesWithANaiveOne draws both indices from the same numbers.
func TestChooseAgreesWithANaiveOne(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		n := 2 + r.IntN(20)
		f := filled(t, n)
		all := f.View().Instances
		for range r.IntN(40) {
			i := all[r.IntN(n)]
			if _, ok := f.Acquire(f.View(), i); !ok {
				t.Fatal("not granted")
			}
		}
		x := r.Uint64()
		got := choose(all, func() uint64 { return x })
		a := int(float64(x>>32) / (1 << 32) * float64(n))
		others := append(append([]*table.Instance{}, all[:a]...), all[a+1:]...)
		b := others[int(float64(x&0xffffffff)/(1<<32)*float64(n-1))]
		want := all[a]
		if b.InFlight() < want.InFlight() {
			want = b
		}
		if got != want {
			t.Fatalf("picked %s of %d, want %s", got.UID, n, want.UID)
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	for zone, limit := range map[string]uint32{"": 40, "a": 100} {
		f := placed(t, 50, zone, "a", "b", "a", "a")
		if n := testing.AllocsPerRun(1000, func() {
			l, _ := Acquire(f, Want{Limit: limit}, rand.Uint64)
			l.Release()
		}); n > 0 {
			t.Errorf("in zone %q: %v allocations, want none", zone, n)
		}
	}
}

func BenchmarkAcquire(b *testing.B) {
	f := filled(b, 50)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, _ := Acquire(f, Want{Limit: 40}, rand.Uint64)
			l.Release()
		}
	})
}

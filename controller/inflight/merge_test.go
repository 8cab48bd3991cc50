package inflight

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"skipper/controller/heartbeat"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func load(node string, counts map[string]uint32) Load {
	return Load{Node: node, Received: start, Words: []map[string]uint32{counts}}
}

func beat(node string, total uint32, counts map[string]uint32) heartbeat.Report {
	return heartbeat.Report{Node: node, Received: start, Heard: start, InFlight: total, Instances: counts}
}

type on = map[string]uint32

func TestPodAndFunction(t *testing.T) {
	tests := []struct {
		name     string
		loads    []Load
		beats    []heartbeat.Report
		pod, all uint64 // on pod p, and of a function with pods p and q
	}{
		{"nobody speaks", nil, nil, 0, 0},
		{"only Envoy", []Load{load("a", on{"p": 2, "q": 1, "other": 9})}, nil, 2, 3},
		{"only extproc", nil, []heartbeat.Report{beat("a", 3, on{"p": 2, "q": 1})}, 2, 3},
		{"both say the same", []Load{load("a", on{"p": 2})}, []heartbeat.Report{beat("a", 2, on{"p": 2})}, 2, 2},
		{"extproc knows first", []Load{load("a", on{"p": 2})}, []heartbeat.Report{beat("a", 3, on{"p": 3})}, 3, 3},
		{"extproc is dead", []Load{load("a", on{"p": 5})}, []heartbeat.Report{beat("a", 2, on{"p": 2})}, 5, 5},
		{"Envoys add up", []Load{load("a", on{"p": 2}), load("b", on{"p": 3})}, nil, 5, 5},
		{"by Envoy the greater", []Load{load("a", on{"p": 2}), load("b", on{"p": 3})}, []heartbeat.Report{beat("a", 4, on{"p": 4}), beat("b", 1, on{"p": 1})}, 7, 7},
		{"two extprocs of one Envoy", []Load{load("a", on{"p": 3})}, []heartbeat.Report{beat("a", 2, on{"p": 2}), beat("a", 2, on{"p": 2})}, 4, 4},
		{"routers without an Envoy", []Load{load("a", on{"p": 3})}, []heartbeat.Report{beat("", 1, on{"p": 1}), beat("", 1, on{"p": 1})}, 5, 5},
		{"contract only", nil, []heartbeat.Report{beat("", 4, nil), beat("", 1, nil)}, 0, 5},
		{"contract beside ours", []Load{load("a", on{"p": 3})}, []heartbeat.Report{beat("", 4, nil), beat("a", 3, on{"p": 3})}, 3, 7},
		{"contract that names its Envoy", []Load{load("a", on{"p": 3, "q": 1})}, []heartbeat.Report{beat("a", 5, nil)}, 3, 5},
		{"some on no pod", []Load{load("a", on{"p": 3})}, []heartbeat.Report{beat("a", 5, on{"p": 2})}, 3, 5},
		{"one that went on elsewhere", []Load{load("a", on{"q": 1})}, []heartbeat.Report{beat("a", 1, on{"p": 1})}, 1, 1},
		{"the same at two Envoys", []Load{load("a", on{"q": 1}), load("b", on{"p": 2})}, []heartbeat.Report{beat("a", 1, on{"p": 1}), beat("b", 1, on{"q": 1})}, 3, 3},
		{"different Envoys of different pods", []Load{load("a", on{"q": 1})}, []heartbeat.Report{beat("b", 1, on{"p": 1})}, 1, 2},
		{"one router of an Envoy says where and one does not", []Load{load("a", on{"p": 1})}, []heartbeat.Report{beat("a", 4, nil), beat("a", 3, on{"p": 3})}, 3, 7},
		{"all that is on pods, and one router more", []Load{load("a", on{"p": 3, "q": 2})}, []heartbeat.Report{beat("a", 2, on{"p": 2}), beat("", 4, on{"p": 4})}, 7, 9},
		{"a pod that only heartbeats name", nil, []heartbeat.Report{beat("a", 2, on{"gone": 2})}, 0, 2},
		{"two Envoys of one name", []Load{{Node: "a", Words: []map[string]uint32{{"p": 2}, {"p": 3, "q": 1}}}}, nil, 5, 6},
	}
	for _, row := range tests {
		if got := Pod("p", row.loads, row.beats); got != row.pod {
			t.Errorf("%s: %d on the pod, want %d", row.name, got, row.pod)
		}
		if got := Function([]string{"p", "q"}, row.loads, row.beats); got != row.all {
			t.Errorf("%s: %d of the function, want %d", row.name, got, row.all)
		}
	}
}

// naivePod follows the sentence of the design, node by node, over all names.
func naivePod(uid string, loads []Load, beats []heartbeat.Report) (n uint64) {
	nodes := map[string]bool{}
	for _, l := range loads {
		nodes[l.Node] = true
	}
	for _, b := range beats {
		if b.Node == "" {
			n += uint64(b.Instances[uid])
			continue
		}
		nodes[b.Node] = true
	}
	for node := range nodes {
		var reported, said uint64
		for _, l := range loads {
			if l.Node == node {
				reported = uint64(l.Words[0][uid])
			}
		}
		for _, b := range beats {
			if b.Node == node {
				said += uint64(b.Instances[uid])
			}
		}
		if said > reported {
			reported = said
		}
		n += reported
	}
	return n
}

// naiveFunction asks each node in turn for both sums.
func naiveFunction(uids []string, loads []Load, beats []heartbeat.Report) (n uint64) {
	nodes := map[string][2]uint64{} // reported and said
	for _, l := range loads {
		for _, uid := range uids {
			sums := nodes[l.Node]
			nodes[l.Node] = [2]uint64{sums[0] + l.On(uid), sums[1]}
		}
	}
	for i, b := range beats {
		node := b.Node
		if node == "" {
			node = fmt.Sprint("none-", i)
		}
		sums := nodes[node]
		nodes[node] = [2]uint64{sums[0], sums[1] + uint64(b.InFlight)}
	}
	for _, sums := range nodes {
		if sums[0] > sums[1] {
			n += sums[0]
		} else {
			n += sums[1]
		}
	}
	return n
}

// random makes loads and heartbeats that say where all requests are.
func random(r *rand.Rand) (loads []Load, beats []heartbeat.Report) {
	counts := func() (on, uint32) {
		out, sum := on{}, uint32(0)
		for i := range r.IntN(4) {
			n := 1 + r.Uint32N(5)
			out[fmt.Sprint("p", i)] = n
			sum += n
		}
		return out, sum
	}
	for i := range r.IntN(4) {
		c, _ := counts()
		loads = append(loads, load(fmt.Sprint("e", i), c))
	}
	for range r.IntN(6) {
		node := ""
		if n := r.IntN(6); n < 5 {
			node = fmt.Sprint("e", n)
		}
		c, sum := counts()
		beats = append(beats, beat(node, sum, c))
	}
	return loads, beats
}

func TestMergeIsTheNaiveOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	uids := []string{"p0", "p1", "p2", "p3"}
	for range 20_000 {
		loads, beats := random(r)
		var sum uint64
		for _, uid := range uids {
			want := naivePod(uid, loads, beats)
			sum += want
			if got := Pod(uid, loads, beats); got != want {
				t.Fatalf("%d on %s, want %d: %v %v", got, uid, want, loads, beats)
			}
		}
		got, want := Function(uids, loads, beats), naiveFunction(uids, loads, beats)
		if got != want || got > sum {
			t.Fatalf("%d of the function, want %d, and no more than the %d on its pods: %v %v", got, want, sum, loads, beats)
		}
	}
}

// What one more witness says never makes less of it, and never adds more than
// it says itself.
func TestOneMoreWitnessAddsAtMostItsOwnWord(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		loads, beats := random(r)
		with, without := Pod("p0", loads, beats), uint64(0)
		said := uint64(0)
		if len(beats) > 0 && r.IntN(2) == 0 {
			without, said = Pod("p0", loads, beats[1:]), uint64(beats[0].Instances["p0"])
		} else if len(loads) > 0 {
			without, said = Pod("p0", loads[1:], beats), loads[0].On("p0")
		} else {
			continue
		}
		if with < without || with-without > said {
			t.Fatalf("%d with and %d without one who says %d", with, without, said)
		}
	}
}

func TestKnown(t *testing.T) {
	late, early := start.Add(20*time.Second), start.Add(-time.Second)
	onTime, atOnce := start.Add(loadUnderWay), start.Add(beatUnderWay)
	heard := func(b heartbeat.Report, received, any time.Time) heartbeat.Report {
		b.Received, b.Heard = received, any
		return b
	}
	a := Load{Node: "a", Received: late}
	holds := late.Add(-loadUnderWay)
	tests := []struct {
		name  string
		loads []Load
		beats []heartbeat.Report
		known bool
		asOf  time.Time
	}{
		{"nobody", nil, nil, true, time.Time{}},
		{"all later", []Load{a}, []heartbeat.Report{heard(beat("a", 1, on{"p": 1}), late, late)}, true, holds},
		{"an Envoy whose word may have been under way", []Load{{Received: onTime}, a}, nil, false, start},
		{"an Envoy a little later", []Load{{Received: onTime.Add(1)}, a}, nil, true, start.Add(1)},
		{"a router earlier", []Load{a}, []heartbeat.Report{heard(beat("a", 1, on{"p": 1}), early, late)}, false, early},
		{"a router whose Envoy speaks", []Load{a}, []heartbeat.Report{heard(beat("a", 1, on{"p": 1}), start.Add(1), late)}, true, start.Add(1)},
		{"a router whose Envoy is silent", []Load{a}, []heartbeat.Report{heard(beat("b", 1, on{"p": 1}), atOnce, late)}, false, start},
		{"the same a little later", []Load{a}, []heartbeat.Report{heard(beat("b", 1, on{"p": 1}), atOnce.Add(1), late)}, true, start.Add(1)},
		{"a router that does not say where", []Load{a}, []heartbeat.Report{heard(beat("", 1, nil), late, late)}, false, late.Add(-beatUnderWay)},
		{"idle, and heard long after", []Load{a}, []heartbeat.Report{heard(beat("a", 0, nil), early, late)}, true, late.Add(-settled)},
		{"idle, and heard soon after", []Load{a}, []heartbeat.Report{heard(beat("a", 0, nil), early, start.Add(settled))}, false, start},
		{"busy, and heard long after", []Load{a}, []heartbeat.Report{heard(beat("a", 1, on{"p": 1}), early, late)}, false, early},
	}
	for _, row := range tests {
		known, asOf := Known(row.loads, row.beats, start)
		if known != row.known || !asOf.Equal(row.asOf) {
			t.Errorf("%s: %v as of %v, want %v as of %v", row.name, known, asOf, row.known, row.asOf)
		}
	}
}

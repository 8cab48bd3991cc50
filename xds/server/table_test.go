package server

import (
	"testing"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/server/internal/delta"
)

// TestWhichListStands gives an entry that is being asked for what the source
// and changes say, in any order.
func TestWhichListStands(t *testing.T) {
	type word struct {
		source  bool
		version uint64
		uid     string
	}
	for _, row := range []struct {
		name  string
		words []word
		want  string
	}{
		{"source alone", []word{{true, 1, "s"}}, "s"},
		{"change after the source", []word{{true, 1, "s"}, {false, 2, "c"}}, "c"},
		{"change before an older source", []word{{false, 2, "c"}, {true, 1, "s"}}, "c"},
		{"change before an equally old source", []word{{false, 2, "c"}, {true, 2, "s"}}, "c"},
		{"change before a newer source", []word{{false, 2, "c"}, {true, 3, "s"}}, "s"},
		{"older change after the source", []word{{true, 3, "s"}, {false, 2, "c"}}, "s"},
		{"equally old change after the source", []word{{true, 3, "s"}, {false, 3, "c"}}, "c"},
	} {
		tab := newTable(xds.InstancesTypeURL, "instances", delta.Rules{}, true)
		e := &entry{pending: true, peers: map[*peer]bool{}}
		tab.entries["a/b/c"] = e
		e.peers[&peer{subs: map[string]*delta.Subscription{tab.url: delta.New(delta.Rules{})}}] = true
		want := ""
		for _, w := range row.words {
			l, err := encodeList(&skipperpb.FunctionInstances{Name: "a/b/c", Version: w.version, Instances: []*skipperpb.Instance{{Uid: w.uid}}})
			if err != nil {
				t.Fatal(err)
			}
			if w.uid == row.want {
				want = l.resource.GetVersion()
			}
			if w.source {
				l.entry = e
			}
			tab.putList(l, map[*peer]bool{})
		}
		if got := e.resource.GetVersion(); got != want {
			t.Errorf("%s: not that of %q stands", row.name, row.want)
		}
	}
}

func TestAnswerForAnEarlierSubscriptionIsDropped(t *testing.T) {
	tab := newTable(xds.InstancesTypeURL, "instances", delta.Rules{}, true)
	earlier, now := &entry{pending: true}, &entry{pending: true}
	tab.entries["a/b/c"] = now
	l, err := encodeList(&skipperpb.FunctionInstances{Name: "a/b/c", Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	l.entry = earlier
	tab.putList(l, map[*peer]bool{})
	if !now.pending {
		t.Error("it was taken for the answer to the later one")
	}
}

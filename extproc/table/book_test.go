package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
)

func pod(n int, version uint64) *skipperpb.Instance {
	return &skipperpb.Instance{
		Uid: fmt.Sprintf("uid-%d", n), Name: fmt.Sprintf("pod-%d", n), Addr: fmt.Sprintf("10.0.0.%d:80", n), Cluster: "c",
		Version: version, AssignedAt: timestamppb.New(time.Unix(int64(n), 0)),
	}
}

// news is one thing that extproc hears; the zero kind is a push.
type news struct {
	answer  *skipperpb.Instance
	list    []*skipperpb.Instance
	version uint64
	at      int // seconds
}

func push(at int, version uint64, list ...*skipperpb.Instance) news {
	return news{list: list, version: version, at: at}
}

func answer(at int, i *skipperpb.Instance) news { return news{answer: i, at: at} }

// tell applies n.
func (b *book) tell(n news) {
	count := func(string) *counter { return &counter{} }
	now := time.Unix(int64(n.at), 0)
	if n.answer != nil {
		b.answer(n.answer, now, count)
		return
	}
	b.push(n.list, n.version, now, count)
}

func (b *book) uids() []string {
	var out []string
	for _, i := range b.list() {
		out = append(out, fmt.Sprintf("%s@%d", i.UID, i.Version))
	}
	return out
}

func TestBook(t *testing.T) {
	tests := []struct {
		name   string
		news   []news
		expire int // drop what only answers spoke of up to that second; 0 does not
		want   []string
	}{
		{"push", []news{push(0, 10, pod(1, 5), pod(2, 6))}, 0, []string{"uid-2@6", "uid-1@5"}},
		{"push replaces", []news{push(0, 10, pod(1, 5)), push(1, 11, pod(2, 6))}, 0, []string{"uid-2@6"}},
		{"empty push", []news{push(0, 10, pod(1, 5)), push(1, 11)}, 0, nil},
		{"answer adds", []news{push(0, 10, pod(1, 5)), answer(1, pod(2, 12))}, 0, []string{"uid-2@12", "uid-1@5"}},
		{"old push keeps a newer answer", []news{answer(0, pod(2, 12)), push(1, 10, pod(1, 5))}, 0, []string{"uid-2@12", "uid-1@5"}},
		{"newer push drops an answer that it lacks", []news{answer(0, pod(2, 12)), push(1, 12)}, 0, nil},
		{"late answer does not revive", []news{push(0, 5, pod(1, 5)), push(1, 10), answer(2, pod(1, 5))}, 0, nil},
		{"late push does not revive", []news{push(0, 5, pod(1, 5)), push(1, 10), push(2, 7, pod(1, 5))}, 0, nil},
		{"late push brings no pod that a newer one lacks", []news{push(0, 10), push(1, 7, pod(1, 5))}, 0, nil},
		{"pod that was assigned anew comes back", []news{push(0, 5, pod(1, 5)), push(1, 10), push(2, 13, pod(1, 12))}, 0, []string{"uid-1@12"}},
		{"older description of a known pod", []news{answer(0, pod(1, 9)), push(1, 9, pod(1, 7))}, 0, []string{"uid-1@9"}},
		{"pods without addr, uid or cluster", []news{push(0, 10, &skipperpb.Instance{Uid: "u"}, &skipperpb.Instance{Addr: "a"}, nil, pod(1, 1))}, 0, []string{"uid-1@1"}},
		{"unconfirmed answer expires", []news{answer(0, pod(1, 9)), push(1, 8)}, 30, nil},
		{"confirmed answer stays", []news{answer(0, pod(1, 9)), push(1, 9, pod(1, 9))}, 30, []string{"uid-1@9"}},
		{"older push that lacks a pod leaves it for now", []news{push(0, 9, pod(1, 9)), push(1, 8)}, 0, []string{"uid-1@9"}},
		{"pod that an older push lacks and none confirms expires", []news{push(0, 9, pod(1, 9)), push(1, 8), push(2, 8)}, 30, nil},
		{"pod that an older push lacks is confirmed again", []news{push(0, 9, pod(1, 9)), push(1, 8), push(2, 9, pod(1, 9))}, 30, []string{"uid-1@9"}},
		{"pod that an older push has just lacked stays", []news{push(0, 9, pod(1, 9)), push(31, 8)}, 30, []string{"uid-1@9"}},
		{"pod that its controller listed and took back before its watch showed it", []news{answer(0, pod(1, 9)), push(1, 5, pod(1, 9)), push(2, 5)}, 0, nil},
		{"late answer does not revive what was taken back", []news{push(1, 5, pod(1, 9)), push(2, 6), answer(3, pod(1, 9))}, 0, nil},
		{"pod that was taken back and assigned anew", []news{push(1, 5, pod(1, 9)), push(2, 6), answer(3, pod(1, 10))}, 0, []string{"uid-1@10"}},
		{"recent answer stays", []news{answer(31, pod(1, 9))}, 30, []string{"uid-1@9"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook()
			for _, n := range tt.news {
				b.tell(n)
			}
			if tt.expire > 0 {
				b.expire(time.Unix(int64(tt.expire), 0))
			}
			if diff := cmp.Diff(tt.want, b.uids()); diff != "" {
				t.Errorf("instances (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGonePodsAreForgottenInTheEnd(t *testing.T) {
	b := newBook()
	for n := range 3 * maxGone {
		v := uint64(2 * n)
		b.tell(push(0, v+1, pod(n, v)))
	}
	if len(b.gone) != maxGone || len(b.order) != maxGone {
		t.Errorf("%d and %d pods are remembered, want %d", len(b.gone), len(b.order), maxGone)
	}
}

// model decides by looking at the whole history, newest news last.
type model struct{ history []news }

// fate is what the history says of one pod so far.
type fate struct {
	version, goneAt uint64
	listed          uint64 // by pushes up to that version; 0: by none
	known, gone     bool
}

// usable says whether the history lets requests go to uid, and with which version.
func (m *model) usable(uid string) (uint64, bool) {
	var f fate
	var highest uint64 // of the pushes so far
	for _, n := range m.history {
		if i, listed := n.about(uid); listed {
			f.hear(i.GetVersion(), n.answer == nil && n.version < highest, highest)
			if f.known && n.answer == nil {
				f.listed = max(f.listed, n.version)
			}
		} else if n.answer == nil && f.known && (n.version >= f.version || f.listed > 0 && n.version >= f.listed) {
			f = fate{gone: true, goneAt: max(n.version, f.version)}
		}
		if n.answer == nil {
			highest = max(highest, n.version)
		}
	}
	return f.version, f.known
}

// hear takes a description of the pod; late says that it came by a push below
// the highest one.
func (f *fate) hear(version uint64, late bool, highest uint64) {
	if f.gone && version <= f.goneAt {
		return
	}
	if !f.known && late && version <= highest {
		return
	}
	f.known = true
	f.version = max(f.version, version)
}

func (n news) about(uid string) (*skipperpb.Instance, bool) {
	if n.answer != nil {
		return n.answer, n.answer.GetUid() == uid
	}
	k := slices.IndexFunc(n.list, func(i *skipperpb.Instance) bool { return i.GetUid() == uid })
	if k < 0 {
		return nil, false
	}
	return n.list[k], true
}

func TestBookAgreesWithItsHistory(t *testing.T) {
	for seed := range uint64(800) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, m := newBook(), &model{}
		for step := range 30 {
			n := randomNews(r, step)
			m.history = append(m.history, n)
			b.tell(n)
			var want []string
			for p := 5; p >= 0; p-- {
				if v, ok := m.usable(fmt.Sprintf("uid-%d", p)); ok {
					want = append(want, fmt.Sprintf("uid-%d@%d", p, v))
				}
			}
			if diff := cmp.Diff(want, b.uids()); diff != "" {
				t.Fatalf("seed %d, step %d: instances (-want +got):\n%s", seed, step, diff)
			}
		}
	}
}

func randomNews(r *rand.Rand, step int) news {
	version := uint64(r.IntN(20) + step)
	if r.IntN(3) == 0 {
		return answer(step, pod(r.IntN(6), version))
	}
	n := news{version: version, at: step}
	for p := range 6 {
		if r.IntN(2) == 0 {
			n.list = append(n.list, pod(p, version-uint64(r.IntN(int(version)+1))))
		}
	}
	return n
}

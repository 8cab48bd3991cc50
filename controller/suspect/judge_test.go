package suspect

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

var (
	owner = &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "a", Scale: &skipperpb.Scale{MaxInstances: 9}}
	other = &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "b", Scale: &skipperpb.Scale{MaxInstances: 9}}
)

// pod is a ready instance of owner, changed.
func pod(uid string, change func(*pool.Pod)) pool.Pod {
	p := pool.Pod{
		Namespace: "prod", Name: "pod-" + uid, UID: uid, IP: "10.0.0.1", Port: 80, Protocol: xds.HTTP1, Deployment: "echo",
		Ready: true, Phase: corev1.PodRunning, Marked: true, Tenant: "a", Function: owner, Key: fn.KeyOf(owner),
		AssignedAt: time.Unix(1, 0), ReadyAt: time.Unix(2, 0), Version: 5,
	}
	if change != nil {
		change(&p)
	}
	return p
}

func TestJudge(t *testing.T) {
	mine := pod("u", nil)
	for name, row := range map[string]struct {
		live  pool.Pod
		found bool
		err   error
		want  verdict
	}{
		"as it was":           {mine, true, nil, well},
		"not there":           {pool.Pod{}, false, nil, gone},
		"another of its name": {pod("v", nil), true, nil, gone},
		"being deleted":       {pod("u", func(p *pool.Pod) { p.Deleting = true }), true, nil, ending},
		"failed":              {pod("u", func(p *pool.Pod) { p.Phase = corev1.PodFailed }), true, nil, ending},
		"finished":            {pod("u", func(p *pool.Pod) { p.Phase = corev1.PodSucceeded }), true, nil, ending},
		"evicted":             {pod("u", func(p *pool.Pod) { p.Evicted = true }), true, nil, ending},
		"not ready":           {pod("u", func(p *pool.Pod) { p.Ready = false }), true, nil, unready},
		"restarted":           {pod("u", func(p *pool.Pod) { p.ReadyAt = time.Time{} }), true, nil, unready},
		"draining":            {pod("u", func(p *pool.Pod) { p.Draining = true }), true, nil, unready},
		"not known":           {pool.Pod{}, false, errors.New("no answer"), unread},
		"not known, in part":  {mine, true, errors.New("no answer"), unread},
	} {
		if got := judge(mine, row.live, row.found, row.err); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
	idle := pod("u", func(p *pool.Pod) { p.Ready = false })
	if got := judge(idle, idle, true, nil); got != well {
		t.Errorf("one that was not ready before is %s, want %s: no news", got, well)
	}
}

func TestOnlyInstancesOfTheFunctionAreSuspected(t *testing.T) {
	for name, row := range map[string]struct {
		p    pool.Pod
		want bool
	}{
		"ready":      {pod("u", nil), true},
		"assigned":   {pod("u", func(p *pool.Pod) { p.ReadyAt = time.Time{} }), true},
		"draining":   {pod("u", func(p *pool.Pod) { p.Draining = true }), true},
		"deleted":    {pod("u", func(p *pool.Pod) { p.Deleting = true }), false},
		"dead":       {pod("u", func(p *pool.Pod) { p.Evicted = true }), false},
		"unassigned": {pod("u", func(p *pool.Pod) { *p = pool.Pod{UID: "u"} }), false},
		"another's":  {pod("u", func(p *pool.Pod) { p.Function, p.Key = other, fn.KeyOf(other) }), false},
		"unreadable": {pod("u", func(p *pool.Pod) { p.Function = nil }), false},
	} {
		if got := isInstance(row.p, fn.KeyOf(owner)); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

// story is what was seen of a record, and what must hold of it whatever comes.
type story struct {
	t            *testing.T
	record       record
	now          time.Time
	queued       bool
	looked, said time.Time
}

func (s *story) hear(n uint32) {
	at, due := s.record.hear(n, s.now)
	if due == s.queued {
		s.t.Fatalf("due %v although queued %v", due, s.queued)
	}
	if !due {
		return
	}
	if at.Before(s.now) || !s.looked.IsZero() && at.Sub(s.looked) < pause {
		s.t.Fatalf("due at %v, looked at %v, now %v", at, s.looked, s.now)
	}
	s.queued, s.now = true, at
}

func (s *story) settle(seen verdict) {
	failures, say := s.record.settle(seen, s.now)
	s.queued, s.looked = false, s.now
	if !say {
		return
	}
	if !s.said.IsZero() && s.now.Sub(s.said) < window {
		s.t.Fatalf("a line at %v after one at %v", s.now, s.said)
	}
	if seen == left || seen == well && failures < manyFailures {
		s.t.Fatalf("a line for %d failures of a pod that %s", failures, seen)
	}
	s.said = s.now
}

// Whatever comes, in any order: a look at a time, looks apart by the pause,
// lines apart by the window.
func FuzzRecord(f *testing.F) {
	f.Add([]byte{1, 2, 3, 130, 7, 200, 1})
	f.Add([]byte{255, 255, 0, 0, 131, 132, 133})
	f.Fuzz(func(t *testing.T, steps []byte) {
		s := story{t: t, now: time.Unix(1000, 0)}
		for _, step := range steps {
			s.now = s.now.Add(time.Duration(step%64) * 100 * time.Millisecond)
			switch {
			case step < 128:
				s.hear(uint32(step % 8))
			case s.queued:
				s.settle([]verdict{well, gone, unready, left}[step%4])
			}
		}
	})
}

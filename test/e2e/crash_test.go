//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	skipperpb "skipper/proto"
)

// crashStage kills controllers as kill -9 does, each in the middle of one write to the API server. Afterwards nothing
// is left over, and what was in use has ended well. Red: a pod stays claimed for nobody or half assigned, a drain is
// forgotten or cuts a request, two replacements are made for one, or a oneshot's pod lives on.
func crashStage(t *testing.T) {
	s := newStage(t, 2, stageSettings())
	for _, story := range []struct {
		name string
		play func(*testing.T, *stage)
	}{
		{"scaling up", crashScalingUp}, {"draining", crashDraining}, {"replacing", crashReplacing}, {"with oneshots", crashOneshots},
	} {
		t.Run(story.name, func(t *testing.T) {
			begun := time.Now()
			story.play(t, s)
			t.Logf("took %s", time.Since(begun).Round(time.Second))
		})
	}
}

// The third instance has been claimed when the controller dies, and never gets its assignment from it.
func crashScalingUp(t *testing.T, s *stage) {
	const instances = 3
	p := s.newPool(t, 4)
	f := p.function("a")
	f.Scale = &skipperpb.Scale{MinInstances: instances, MaxInstances: instances}
	tr := s.gate.catch(true, after(instances-1, p.claims()))
	load := startCrowd(t, p, f, 3, "/slow?for=300ms")
	s.killCaught(t, tr)
	p.waitLeft(t, map[string]int{f.GetTenant(): instances})
	load.stop(t)
}

// One of two instances has been told to drain, because callers want one only from now on, when the controller dies. What
// runs on it ends well, and then it goes.
func crashDraining(t *testing.T, s *stage) {
	p := s.newPool(t, 3)
	f := p.function("a")
	f.Scale = &skipperpb.Scale{MinInstances: 2, MaxInstances: 2}
	mustEcho(t, p.get(t.Context(), f, "/"))
	p.waitSpread(t, f, 2)
	fewer := p.function("a")
	fewer.Scale = &skipperpb.Scale{MinInstances: 1, MaxInstances: 1}
	long := make(chan []answer, 1)
	tr := s.gate.catch(true, p.drains())
	go func() { long <- atOnce(6, func(int) answer { return p.get(t.Context(), f, "/slow?for=40s") }) }()
	load := startCrowd(t, p, fewer, 2, "/slow?for=300ms")
	at := s.caught(t, tr)
	if len(long) > 0 {
		t.Error("the long requests ended before the drain began: the test shows nothing")
	}
	s.kill(t, at)
	if n := distinct(podsOf(t, <-long)); n != 2 {
		t.Errorf("long requests had %d pods, want 2: the test shows nothing", n)
	}
	p.waitLeft(t, map[string]int{f.GetTenant(): 1})
	load.stop(t)
}

// A replacement has been claimed when the controller dies.
func crashReplacing(t *testing.T, s *stage) {
	p := s.newPool(t, 3)
	f := p.function("a")
	f.Scale = &skipperpb.Scale{MinInstances: 2, MaxInstances: 2}
	load := startCrowd(t, p, f, 3, "/slow?for=300ms")
	p.waitServing(t, f, 2)
	p.waitFull(t)
	before := p.serving(f)
	tr := s.gate.catch(true, p.claims())
	p.changeTemplate(t, "next")
	s.killCaught(t, tr)
	p.waitServing(t, f, 2, before...)
	for _, old := range before {
		p.waitGone(t, old.pod.UID)
	}
	p.waitLeft(t, map[string]int{f.GetTenant(): 2})
	load.stop(t)
}

// The controller dies when a oneshot's pod has been claimed, and another one when it is about to delete a pod that was
// given back. A request that runs meanwhile ends well; each has a pod of its own, and none is left.
func crashOneshots(t *testing.T, s *stage) {
	p := s.newPool(t, 4)
	long := make(chan answer, 1)
	go func() { long <- p.get(t.Context(), p.oneshot("long"), "/slow?for=30s") }()
	eventually(t, "the long request's pod", func() (bool, string) {
		held := p.pods.held(p.tenant("long"))
		return len(held) == 1 && held[0].pod.Annotations[readyAtNote] != "", p.pods.String()
	})
	claimed := s.gate.catch(true, p.claims())
	first := make(chan answer, 1)
	go func() { first <- p.get(t.Context(), p.oneshot("first"), "/") }()
	s.killCaught(t, claimed)
	one := mustEcho(t, <-first)
	deleted := s.gate.catch(false, p.deletes())
	two := mustEcho(t, p.get(t.Context(), p.oneshot("second"), "/"))
	s.killCaught(t, deleted)
	three := mustEcho(t, <-long)
	if one.PodUID == two.PodUID || two.PodUID == three.PodUID || one.PodUID == three.PodUID {
		t.Errorf("oneshot requests share pods %s, %s, %s", one.PodUID, two.PodUID, three.PodUID)
	}
	p.waitLeft(t, map[string]int{})
}

// claims, drains and deletes fit what controllers ask of the API server for pods of the pool.
func (p *pool) claims() func(*http.Request, []byte) bool {
	return p.patches(`skipper~1assigned-at`)
}

func (p *pool) drains() func(*http.Request, []byte) bool  { return p.patches(`skipper~1draining-at`) }
func (p *pool) deletes() func(*http.Request, []byte) bool { return p.asks(http.MethodDelete, "") }

func (p *pool) patches(what string) func(*http.Request, []byte) bool {
	return p.asks(http.MethodPatch, what)
}

func (p *pool) asks(method, what string) func(*http.Request, []byte) bool {
	return func(r *http.Request, body []byte) bool {
		return r.Method == method && strings.Contains(r.URL.Path, "/pods/"+p.name+"-") && bytes.Contains(body, []byte(what))
	}
}

// after lets the first n pass that fit.
func after(n int, fits func(*http.Request, []byte) bool) func(*http.Request, []byte) bool {
	return func(r *http.Request, body []byte) bool {
		if !fits(r, body) {
			return false
		}
		n--
		return n < 0
	}
}

// waitSpread waits until requests at once are served by so many pods.
func (p *pool) waitSpread(t *testing.T, f *skipperpb.Function, pods int) {
	t.Helper()
	eventually(t, fmt.Sprint("answers of ", pods, " pods"), func() (bool, string) {
		n := distinct(podsOf(t, atOnce(2*pods, func(int) answer { return p.get(t.Context(), f, "/slow?for=300ms") })))
		return n == pods, fmt.Sprint(n)
	})
}

// killCaught kills the controller in the trap, and waits until it runs again.
func (s *stage) killCaught(t *testing.T, tr *trap) {
	t.Helper()
	s.kill(t, s.caught(t, tr))
}

// caught waits for the address of the controller in the trap.
func (s *stage) caught(t *testing.T, tr *trap) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case ip := <-tr.from:
		return ip
	case <-ctx.Done():
		t.Fatalf("no controller asked for it: %v", ctx.Err())
		return ""
	}
}

// kill ends the controller at the address as kill -9 does, and waits until it runs again.
func (s *stage) kill(t *testing.T, ip string) {
	t.Helper()
	pod := s.controllerAt(t, ip)
	before := pod.Status.ContainerStatuses[0].RestartCount
	processOf(t, pod, "controller").kill(t)
	// The kubelet starts one that dies often later and later, after 160 s for the fifth time.
	eventuallyFor(t, 2*patience, "the controller to be ready again", func() (bool, string) {
		now := s.controllerAt(t, ip).Status.ContainerStatuses[0]
		return now.Ready && now.RestartCount > before, fmt.Sprintf("%+v", now)
	})
}

// waitLeft waits until the pool's claimed pods are these many of each tenant, all serving, and its free ones are full
// in number and unharmed.
func (p *pool) waitLeft(t *testing.T, want map[string]int) {
	t.Helper()
	eventuallyFor(t, 2*patience, fmt.Sprintf("%v and nothing else", want), func() (bool, string) {
		got := map[string]int{}
		odd := p.pods.find(func(e entry) bool {
			if e.gone {
				return false
			}
			tenant, notes := e.pod.Labels[tenantLabel], e.pod.Annotations
			if tenant != "" {
				got[tenant]++
				return notes[readyAtNote] == "" || notes[drainingAtNote] != "" || e.pod.DeletionTimestamp != nil
			}
			return notes[drainingAtNote] != "" || notes[functionNote] != "" || notes[readyAtNote] != ""
		})
		same := len(got) == len(want)
		for tenant, n := range want {
			same = same && got[tenant] == n
		}
		return same && len(odd) == 0 && len(p.pods.free()) == p.size, fmt.Sprintf("%v, %d odd ones:%s", got, len(odd), p.pods)
	})
}

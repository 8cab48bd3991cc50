package main

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skipper/controller/events"
	"skipper/controller/misfit"
	"skipper/controller/ring"
	"skipper/controller/state"
	"skipper/xds"
)

// buildEvents makes what remembers decisions, for all that tell of them.
func (p *process) buildEvents(c clients) {
	p.registry.MustRegister(c.calls.requests, c.calls.seconds)
	p.recorder = events.NewRecorder(events.RecorderConfig{
		Events: c.background.CoreV1(), ControllerIP: p.PodIP, Registerer: p.registry, Log: p.logger,
	})
	p.events = events.NewLog(events.Config{ControllerIP: p.PodIP, Also: p.recorder.Offer, Registerer: p.registry})
}

// buildVisibility makes what shows the cluster to operators.
func (p *process) buildVisibility() {
	p.misfits = misfit.New(misfit.Config{
		Listen: p.view.Listen, Routers: p.beats.RouterList, Event: p.events.Add, Tells: p.isFirst,
		Registerer: p.registry, Log: p.logger,
	})
	src := state.Sources{
		Self: p.PodIP, StartedAt: p.policy.StartedAt, Version: version(), Settings: p.shown, Shards: xds.DefaultShards,
		Pods: p.view, Ring: p.ring, Peers: p.peers, Supervisors: p.supervisors, Heartbeats: p.beats, Loads: p.loads, Usage: p.usage,
		Waiting: p.claimer.Waiting, Subscribers: p.xds.Subscribers, Events: p.events.Events, Replicas: p.seenReplicas,
		Synced: p.ready.is.Load, FreshAt: p.watch.FreshAt, Held: p.gate.why,
		PoolProblems: p.misfits.Pools, EnvoyProblems: p.misfits.Nodes,
	}
	p.state = state.New(src)
	p.registry.MustRegister(state.NewPoolCollector(p.view, p.claimer.Waiting))
	p.registerAges()
}

// registerAges shows how old what this replica knows is.
func (p *process) registerAges() {
	gauge := func(name, help string, value func() float64) {
		p.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "skipper_controller_" + name, Help: help}, value))
	}
	gauge("ring_members", "Controllers on the ring as this one sees it.", func() float64 {
		return float64(len(p.ring.Current().Members()))
	})
	gauge("view_age_seconds", "How old this replica's view of function pods is at most; -1 before there is one.", func() float64 {
		at := p.watch.FreshAt()
		if at.IsZero() {
			return -1
		}
		return time.Since(at).Seconds()
	})
	gauge("heartbeat_age_seconds", "Age of the newest heartbeat of the router that was heard longest ago, and is not forgotten yet; 0 without routers.", func() float64 {
		now, oldest := time.Now(), time.Duration(0)
		for _, r := range p.beats.RouterList(now) {
			oldest = max(oldest, now.Sub(r.Heard))
		}
		return oldest.Seconds()
	})
	gauge("routers", "Routers whose heartbeats count.", func() float64 { return float64(len(p.beats.RouterList(time.Now()))) })
	gauge("xds_held", "1 while this replica serves no xDS and scales nothing, because it does not see the cluster well enough.", func() float64 {
		if p.gate.blinded() {
			return 1
		}
		return 0
	})
}

// isFirst tells whether this replica speaks for all where one is enough.
func (p *process) isFirst() bool {
	members := p.ring.Current().Members()
	return len(members) > 0 && members[0] == p.PodIP
}

// seenReplicas are the controllers that the cluster shows.
func (p *process) seenReplicas() []ring.Replica {
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	return slices.Clone(p.members.seen)
}

// why says why xDS is held; empty where it is not.
func (g *xdsGate) why() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// version is that of the program, as the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

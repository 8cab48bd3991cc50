package main

import (
	"time"

	"skipper/controller/scale"
	"skipper/controller/supervise"
	"skipper/controller/usage"
)

// scalePolicy is what all functions are scaled by.
func (p *process) scalePolicy() scale.Policy {
	return scale.Policy{
		HeartbeatTimeout: p.HeartbeatTimeout, Stabilization: p.DownscaleStabilization,
		Tolerance: p.Tolerance, InitialReadiness: p.InitialReadinessDelay, StartedAt: time.Now(),
	}
}

// protected tells whether now is so soon after this controller has begun to hear
// what routers say that there may be requests in progress of which it knows nothing.
func (p *process) protected(now time.Time) bool {
	policy := p.policy
	policy.StartedAt = p.hearing.Since(now)
	return policy.Protected(now)
}

// buildUsage makes what reads CPU and memory.
func (p *process) buildUsage(c clients, namespaces []string) {
	p.usage = usage.New(usage.Config{
		Client: c.usage, Namespaces: namespaces, Interval: p.ScaleInterval, Registerer: p.registry, Log: p.logger,
	})
}

func (p *process) buildSupervisors() {
	p.supervisors = supervise.New(supervise.Options{
		Policy: p.policy, Interval: p.ScaleInterval, AssignTimeout: p.FunctionAssignTimeout, Grace: p.callGrace(),
		Replacements: p.MaxConcurrentStaleReplacement,
	}, supervise.Deps{
		Hears: p.hearing.Since, Pods: p.view, Heartbeats: p.loads, Acquirer: p.acquirer, Retirer: p.retirer, Responsible: p.responsible,
		Usage: p.usage, Event: p.events.Add, Logger: p.logger.Named("supervise"), Registerer: p.registry,
	})
}

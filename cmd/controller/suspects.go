package main

import (
	"skipper/controller/suspect"
	skipperpb "skipper/proto"
)

// buildSuspects makes what looks at instances that fail, and has it hear of
// them on the heartbeats' way to the other replicas.
func (p *process) buildSuspects(c clients) {
	p.suspects = suspect.New(suspect.Config{
		Pods: p.view, Live: p.live(c.urgent), Responsible: p.responsible,
		Registerer: p.registry, Log: p.logger.Named("suspect"),
	})
}

// accusations has reports of failures heard.
type accusations struct {
	farewells
	suspects *suspect.Watcher
}

// Heartbeat tells the other replicas.
func (a accusations) Heartbeat(r *skipperpb.HeartbeatRequest) {
	a.suspects.Hear(r)
	a.farewells.Heartbeat(r)
}

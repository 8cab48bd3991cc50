package events

import (
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// OfPod is an event about a pod and the function that it is assigned to, as far
// as its labels tell that.
func OfPod(p pool.Pod, kind skipperpb.EventType, severity skipperpb.EventSeverity, message string) *skipperpb.Event {
	f := p.Function
	if f == nil {
		f = &skipperpb.Function{Namespace: p.Namespace, Deployment: p.Deployment, Tenant: p.Tenant}
	}
	return &skipperpb.Event{
		Function: f, Type: kind, Severity: severity, Message: message,
		InstanceName: p.Name, InstanceUid: p.UID,
	}
}

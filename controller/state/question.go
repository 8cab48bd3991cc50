package state

import (
	skipperpb "skipper/proto"
)

// asks tells whether the question is about the function.
func asks(q *skipperpb.GetClusterStateRequest, f *skipperpb.Function) bool {
	return asksPool(q, f.GetNamespace(), f.GetDeployment()) && (q.GetTenant() == "" || q.GetTenant() == f.GetTenant())
}

// asksPool tells whether the question is about the pool, of whichever tenant.
func asksPool(q *skipperpb.GetClusterStateRequest, namespace, deployment string) bool {
	return (q.GetNamespace() == "" || q.GetNamespace() == namespace) && (q.GetDeployment() == "" || q.GetDeployment() == deployment)
}

// asksEvent leaves out what is about no function, where one is asked for. An
// event about a pool is about all its tenants.
func asksEvent(q *skipperpb.GetClusterStateRequest, e *skipperpb.Event) bool {
	f := e.GetFunction()
	if f.GetTenant() == "" && f != nil {
		return asksPool(q, f.GetNamespace(), f.GetDeployment())
	}
	return asks(q, f)
}

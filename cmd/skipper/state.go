package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	skipperpb "skipper/proto"
)

// filter narrows what is asked for; empty fields do not.
type filter struct{ namespace, deployment, tenant string }

func (x *filter) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&x.namespace, "namespace", "n", "", "only functions of this namespace")
	f.StringVar(&x.deployment, "deployment", "", "only functions of this deployment")
	f.StringVar(&x.tenant, "tenant", "", "only functions of this tenant")
}

func (x *filter) request() *skipperpb.GetClusterStateRequest {
	return &skipperpb.GetClusterStateRequest{Namespace: x.namespace, Deployment: x.deployment, Tenant: x.tenant}
}

func filterOf(f *skipperpb.Function) *filter {
	return &filter{f.GetNamespace(), f.GetDeployment(), f.GetTenant()}
}

// state asks a controller, and remarks on what is missing in its answer.
func (s *session) state(ctx context.Context, r *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
	client, err := s.Controller(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := client.GetClusterState(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("get cluster state: %w", err)
	}
	state := answer.GetClusterState()
	s.remark(state)
	return state, nil
}

// remark says who did not answer: a list that is not whole should not pass for one.
func (s *session) remark(state *skipperpb.ClusterState) {
	for _, r := range state.GetReplicas() {
		if why := r.GetUnreachableReason(); why != "" {
			s.say("controller %s did not answer, so something may be missing: %s", r.GetIp(), why)
		}
	}
}

// say writes a remark for people, beside the result.
func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.note, format+"\n", args...) // a remark that nobody can read is no failure
}

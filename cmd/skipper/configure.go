package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/invoke"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// thatInForce is what a function's pods have.
const thatInForce = "that in force, else "

// configuration are the flags for what a function's name does not say.
type configuration struct {
	metadata string
	scale    skipperpb.Scale
}

// inForce begins what help says of a flag that is not given: thatInForce, or
// nothing where nobody knows what is.
func (c *configuration) addFlags(f *pflag.FlagSet, inForce string) {
	f.StringVar(&c.metadata, "metadata", "", "metadata of the function; not given: "+inForce+"none")
	f.Uint32Var(&c.scale.MinInstances, "min-instances", 0, "scale.min_instances; not given: "+inForce+"0")
	f.Uint32Var(&c.scale.MaxInstances, "max-instances", 0, "scale.max_instances; not given: "+inForce+"1")
	f.Uint32Var(&c.scale.TargetCpuUsageMilli, "target-cpu-usage-milli", 0, "scale.target_cpu_usage_milli; not given: "+inForce+"0")
	f.Uint32Var(&c.scale.TargetMemoryUsageMib, "target-memory-usage-mib", 0, "scale.target_memory_usage_mib; not given: "+inForce+"0")
	f.Uint32Var(&c.scale.TargetInFlightRequests, "target-in-flight-requests", 0, "scale.target_in_flight_requests; not given: "+inForce+"0")
}

// complete is the named function with its configuration: JSON says it whole,
// otherwise what is in force, and over either what flags say. inForce may be nil.
func (c *configuration) complete(named, inForce *skipperpb.Function, changed func(string) bool) (*skipperpb.Function, error) {
	out := &skipperpb.Function{Namespace: named.GetNamespace(), Deployment: named.GetDeployment(), Tenant: named.GetTenant(), Oneshot: named.GetOneshot(), Metadata: inForce.GetMetadata()}
	from := inForce.GetScale()
	if named.GetScale() != nil {
		from, out.Metadata = named.GetScale(), named.GetMetadata()
	}
	out.Scale = &skipperpb.Scale{
		MinInstances: from.GetMinInstances(), MaxInstances: max(from.GetMaxInstances(), 1), TargetCpuUsageMilli: from.GetTargetCpuUsageMilli(),
		TargetMemoryUsageMib: from.GetTargetMemoryUsageMib(), TargetInFlightRequests: from.GetTargetInFlightRequests(),
	}
	if changed("metadata") {
		out.Metadata = c.metadata
	}
	for _, s := range []struct {
		flag     string
		from, to *uint32
	}{
		{"min-instances", &c.scale.MinInstances, &out.Scale.MinInstances},
		{"max-instances", &c.scale.MaxInstances, &out.Scale.MaxInstances},
		{"target-cpu-usage-milli", &c.scale.TargetCpuUsageMilli, &out.Scale.TargetCpuUsageMilli},
		{"target-memory-usage-mib", &c.scale.TargetMemoryUsageMib, &out.Scale.TargetMemoryUsageMib},
		{"target-in-flight-requests", &c.scale.TargetInFlightRequests, &out.Scale.TargetInFlightRequests},
	} {
		if changed(s.flag) {
			*s.to = *s.from
		}
	}
	if err := fn.Validate(out); err != nil {
		return nil, fmt.Errorf("use function %s: %w", fn.KeyOf(out), err)
	}
	return out, nil
}

// podsOf reads the pods that are the tenant's in the function's pool.
func (s *session) podsOf(ctx context.Context, f *skipperpb.Function) ([]pool.Pod, error) {
	list, err := s.Kube.CoreV1().Pods(f.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: pool.LabelDeployment + "=" + f.GetDeployment() + "," + pool.LabelTenant + "=" + f.GetTenant(),
	})
	if err != nil {
		return nil, fmt.Errorf("list pods of the function: %w", err)
	}
	return parse(list.Items), nil
}

// inForce is the configuration that a request should repeat; nil: none is known.
func inForce(f *skipperpb.Function, pods []pool.Pod) *skipperpb.Function {
	return invoke.InForce(fn.KeyOf(f), pods)
}

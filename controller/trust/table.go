package trust

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/xds"
)

// methods says which roles may call what. Each has the least that it needs.
func methods() map[string][]identity.Role {
	routers := []identity.Role{identity.Extproc, identity.Controller, identity.Operator}
	admins := []identity.Role{identity.Controller, identity.Operator}
	xdsClients := []identity.Role{identity.Envoy, identity.Extproc}
	operator := []identity.Role{identity.Operator}
	replicas := []identity.Role{identity.Controller}
	return map[string][]identity.Role{
		skipperpb.ControllerService_GetInstance_FullMethodName:     routers,
		skipperpb.ControllerService_Heartbeat_FullMethodName:       routers,
		skipperpb.ControllerService_ReleaseInstance_FullMethodName: routers,
		skipperpb.ControllerService_Scale_FullMethodName:           admins,
		skipperpb.ControllerService_GetClusterState_FullMethodName: admins,

		skipperpb.ReplicaService_ShareLoad_FullMethodName:     replicas,
		skipperpb.ReplicaService_ShareProgress_FullMethodName: replicas,
		skipperpb.ReplicaService_ReportState_FullMethodName:   replicas,

		discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName:  xdsClients,
		discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName: xdsClients, // to be told to use delta
		loadstatsv3.LoadReportingService_StreamLoadStats_FullMethodName:                 {identity.Envoy},

		healthpb.Health_Check_FullMethodName: identity.Roles(),
		healthpb.Health_Watch_FullMethodName: identity.Roles(),
		healthpb.Health_List_FullMethodName:  identity.Roles(),

		reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      operator,
		reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: operator,
	}
}

// types says which roles may subscribe to which xDS type: Envoy never learns
// whose pod is whose, and extproc needs no addresses but its tenants'.
func types() map[string][]identity.Role {
	return map[string][]identity.Role{
		resourcev3.ClusterType:  {identity.Envoy},
		resourcev3.EndpointType: {identity.Envoy},
		xds.InstancesTypeURL:    {identity.Extproc},
	}
}

// Check returns an error that names the methods of a server that no row of the
// table is about: nobody could call them.
func Check(services map[string]grpc.ServiceInfo) error {
	table, missing := methods(), map[string]bool{}
	for service, info := range services {
		for _, m := range info.Methods {
			if name := "/" + service + "/" + m.Name; table[name] == nil {
				missing[name] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("check authorization: no role may call %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
}

package skipperpb_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	skipperpb "skipper/proto"
)

func TestRetryPolicyIsPinned(t *testing.T) {
	var methods []struct {
		Name        []struct{ Service, Method string }
		RetryPolicy struct {
			MaxAttempts                int
			InitialBackoff, MaxBackoff string
			RetryableStatusCodes       []string
		}
	}
	if err := json.Unmarshal([]byte(skipperpb.MethodConfig), &methods); err != nil {
		t.Fatal(err)
	}
	type policy struct {
		attempts    int
		first, most string
	}
	got := map[string]policy{}
	for _, m := range methods {
		got[m.Name[0].Method] = policy{m.RetryPolicy.MaxAttempts, m.RetryPolicy.InitialBackoff, m.RetryPolicy.MaxBackoff}
		if d := cmp.Diff([]string{"UNAVAILABLE"}, m.RetryPolicy.RetryableStatusCodes); d != "" || m.Name[0].Service != skipperpb.ControllerService_ServiceDesc.ServiceName {
			t.Errorf("%+v (-want +got):\n%s", m.Name, d)
		}
	}
	want := map[string]policy{
		"GetInstance":     {3, "0.01s", "0.1s"},
		"Heartbeat":       {2, "0.01s", "0.05s"},
		"Scale":           {3, "0.05s", "0.5s"},
		"ReleaseInstance": {2, "0.01s", "0.05s"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(policy{})); d != "" {
		t.Errorf("retry policy (-want +got):\n%s", d)
	}
}

// gRPC refuses a service config that it cannot read.
func TestServiceConfigIsAccepted(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(skipperpb.ServiceConfig))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

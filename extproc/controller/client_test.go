package controller

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	skipperpb "skipper/proto"
	"skipper/proto/reason"

	"skipper/extproc/header"
	"skipper/extproc/hold"
	"skipper/extproc/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func function() *header.Function {
	return header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Scale: &skipperpb.Scale{MaxInstances: 3}})
}

type observer []codes.Code

func (o *observer) GotInstance(c codes.Code, _ time.Duration) { *o = append(*o, c) }

// asked answers with one instance or error and keeps the request.
type asked struct {
	instance *skipperpb.Instance
	err      error
	request  *skipperpb.GetInstanceRequest
}

func (a *asked) GetInstance(_ context.Context, r *skipperpb.GetInstanceRequest, _ ...grpc.CallOption) (*skipperpb.GetInstanceResponse, error) {
	a.request = r
	return &skipperpb.GetInstanceResponse{Instance: a.instance}, a.err
}

func TestAskEntersTheInstanceInTheTable(t *testing.T) {
	tab := table.New(table.Options{Now: time.Now()})
	a := &asked{instance: &skipperpb.Instance{Uid: "u", Name: "pod", Addr: "10.0.0.1:80", Cluster: "c", Version: 7}}
	o := &observer{}
	s := &Source{Client: a, Table: tab, Observer: o}
	got := s.Ask(t.Context(), function(), []string{"other"})
	if got.Err != nil || got.Instance.UID != "u" || len(tab.Function(function()).View().Instances) != 1 {
		t.Errorf("answer is %v", got)
	}
	want := &skipperpb.GetInstanceRequest{Function: function().Spec, ExcludeInstanceNames: []string{"other"}}
	if diff := cmp.Diff(want, a.request, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(observer{codes.OK}, *o); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}

func TestAskTellsFinalAnswersFromTrouble(t *testing.T) {
	tests := map[codes.Code]bool{
		codes.Unavailable: false, codes.DeadlineExceeded: false, codes.Canceled: false, codes.Aborted: false,
		codes.InvalidArgument: true, codes.NotFound: true, codes.ResourceExhausted: true, codes.FailedPrecondition: true,
		codes.PermissionDenied: true, codes.Unimplemented: true, codes.Internal: true,
	}
	for code, want := range tests {
		s := &Source{Client: &asked{err: status.Error(code, "cause")}, Table: table.New(table.Options{}), Observer: &observer{}}
		if got := s.Ask(t.Context(), function(), nil); got.Final != want || status.Code(got.Err) != code {
			t.Errorf("%v: final is %v, want %v (%v)", code, got.Final, want, got.Err)
		}
	}
}

func TestAskRefusesWhatCannotBeUsed(t *testing.T) {
	tab := table.New(table.Options{Now: time.Now()})
	f := function()
	tab.Function(f)
	i := &skipperpb.Instance{Uid: "u", Name: "pod", Addr: "10.0.0.1:80", Cluster: "c", Version: 7}
	tab.Push(&skipperpb.FunctionInstances{Name: f.Name, Version: 7, Instances: []*skipperpb.Instance{i}}, time.Now())
	tab.Push(&skipperpb.FunctionInstances{Name: f.Name, Version: 9}, time.Now())
	s := &Source{Client: &asked{instance: i}, Table: tab, Observer: &observer{}}
	got := s.Ask(t.Context(), f, nil)
	if got.Instance != nil || got.Final || got.Exclude != "pod" || reason.Of(got.Err) != reason.HoldTimeout {
		t.Errorf("an instance that is gone: %+v", got)
	}
	s.Client = &asked{instance: &skipperpb.Instance{Uid: "u"}}
	if got := s.Ask(t.Context(), f, nil); !got.Final || reason.Of(got.Err) != reason.Internal {
		t.Errorf("an instance without an address: %+v", got)
	}
	s.Client = &asked{}
	if got := s.Ask(t.Context(), f, nil); !got.Final || reason.Of(got.Err) != reason.Internal {
		t.Errorf("no instance: %+v", got)
	}
}

// flaky fails the first calls as an overloaded replica does.
type flaky struct {
	skipperpb.UnimplementedControllerServiceServer
	fail, calls int
}

func (f *flaky) GetInstance(context.Context, *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	f.calls++
	if f.calls <= f.fail {
		return nil, status.Error(codes.Unavailable, "try again")
	}
	return &skipperpb.GetInstanceResponse{}, nil
}

func TestDialRetriesAsTheContractSays(t *testing.T) {
	for _, tt := range []struct {
		fail, calls int
		want        codes.Code
	}{{2, 3, codes.OK}, {9, 3, codes.Unavailable}} {
		f := &flaky{fail: tt.fail}
		ln := bufconn.Listen(1 << 16)
		g := grpc.NewServer()
		skipperpb.RegisterControllerServiceServer(g, f)
		served := make(chan error, 1)
		go func() { served <- g.Serve(ln) }()
		conn, err := Dial("passthrough:///controller", insecure.NewCredentials(),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		_, err = skipperpb.NewControllerServiceClient(conn).GetInstance(t.Context(), &skipperpb.GetInstanceRequest{})
		if status.Code(err) != tt.want || f.calls != tt.calls {
			t.Errorf("%d failures: %v after %d calls, want %v after %d", tt.fail, err, f.calls, tt.want, tt.calls)
		}
		g.Stop()
		if err := errors.Join(conn.Close(), <-served); err != nil {
			t.Error(err)
		}
	}
}

var _ hold.Asker = (*Source)(nil)

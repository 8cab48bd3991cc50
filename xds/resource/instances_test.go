package resource_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	skipperpb "skipper/proto"
	"skipper/xds/resource"
)

func TestInstancesAreSortedAndWithoutUsage(t *testing.T) {
	in := []*skipperpb.Instance{
		{Uid: "b", Version: 3, CpuUsageMilli: 12},
		nil,
		{Uid: "a", Version: 1},
		{Uid: "b", Version: 4, MemoryUsageMib: 9},
	}
	before := proto.CloneOf(in[0])
	want := &skipperpb.FunctionInstances{Name: "n", Version: 7, Instances: []*skipperpb.Instance{{Uid: "a", Version: 1}, {Uid: "b", Version: 4}}}
	if diff := cmp.Diff(want, resource.Instances("n", in, 7), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !proto.Equal(in[0], before) {
		t.Error("the argument was changed")
	}
}

func TestInstancesVersionFollowsFromWhatIsRoutedTo(t *testing.T) {
	base := instances(1, &skipperpb.Instance{Uid: "a", Addr: "10.0.0.1:80", Version: 1})
	for _, row := range []struct {
		name string
		m    *skipperpb.FunctionInstances
		same bool
	}{
		{"other list version", instances(9, &skipperpb.Instance{Uid: "a", Addr: "10.0.0.1:80", Version: 1}), true},
		{"other pod version", instances(1, &skipperpb.Instance{Uid: "a", Addr: "10.0.0.1:80", Version: 2}), true},
		{"other usage", instances(1, &skipperpb.Instance{Uid: "a", Addr: "10.0.0.1:80", CpuUsageMilli: 5}), true},
		{"other address", instances(1, &skipperpb.Instance{Uid: "a", Addr: "10.0.0.2:80", Version: 1}), false},
		{"other pod", instances(1, &skipperpb.Instance{Uid: "b", Addr: "10.0.0.1:80", Version: 1}), false},
		{"none", instances(1), false},
	} {
		if got := version(t, row.m) == version(t, base); got != row.same {
			t.Errorf("%s: same version is %v, want %v", row.name, got, row.same)
		}
	}
}

func TestEncodeInstancesKeepsVersionsInTheMessage(t *testing.T) {
	want := instances(9, &skipperpb.Instance{Uid: "a", Version: 5})
	r, err := resource.EncodeInstances(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &skipperpb.FunctionInstances{}
	if err := r.GetResource().UnmarshalTo(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeInstancesRefusesInvalidText(t *testing.T) {
	if _, err := resource.EncodeInstances(instances(1, &skipperpb.Instance{Uid: "\xff"})); err == nil {
		t.Error("a UID that is not UTF-8 was encoded")
	}
}

func instances(version uint64, list ...*skipperpb.Instance) *skipperpb.FunctionInstances {
	return resource.Instances("prod/echo/t1", list, version)
}

func version(t *testing.T, m *skipperpb.FunctionInstances) string {
	t.Helper()
	r, err := resource.EncodeInstances(m)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetVersion()
}

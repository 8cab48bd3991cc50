package pool

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/proto/fn"
	"skipper/xds"
)

// with returns p with the named fields taken over from change, so that a zero
// can be set too.
func with(t *testing.T, p, change Pod, fields string) Pod {
	t.Helper()
	to, from := reflect.ValueOf(&p).Elem(), reflect.ValueOf(change)
	for _, name := range strings.Fields(fields) {
		if !to.FieldByName(name).IsValid() {
			t.Fatalf("no field %s", name)
		}
		to.FieldByName(name).Set(from.FieldByName(name))
	}
	return p
}

func yes() *bool { b := true; return &b }

// claimedPod is a Kubernetes pod that serves tenant t1.
func claimedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "echo-1", UID: "u1", ResourceVersion: "41", CreationTimestamp: metav1.NewTime(noon),
			Labels: map[string]string{LabelDeployment: "echo", LabelTenant: "t1", corev1.LabelTopologyZone: "z1"},
			Annotations: map[string]string{
				AnnotationTenant: "t1", AnnotationFunction: string(fn.Marshal(testFunction("t1"))),
				AnnotationAssignedAt: "2026-03-01T12:00:01.250Z", AnnotationReadyAt: "2026-03-01T13:00:02+01:00", AnnotationReplicaSet: "echo-rs",
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "log"},
			{Name: "app", Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "web", ContainerPort: 8080}, {Name: "grpc", ContainerPort: 9090}}},
		}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "::ffff:10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "log", RestartCount: 9},
				{Name: "app", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}},
			},
		},
	}
}

func TestFromPodReadsAClaimedPod(t *testing.T) {
	f := testFunction("t1")
	want := Pod{
		Namespace: "prod", Name: "echo-1", UID: "u1", IP: "10.0.0.1", Port: 8080, Protocol: xds.HTTP1,
		Deployment: "echo", Zone: "z1", ReplicaSet: "echo-rs", Ready: true, Phase: corev1.PodRunning,
		Marked: true, Tenant: "t1", Function: f, Key: fn.KeyOf(f),
		AssignedAt: noon.Add(1250 * time.Millisecond), ReadyAt: noon.Add(2 * time.Second),
		CreatedAt: noon, Restarts: 2, StartedAt: noon, Version: 41, HasAnnotations: true,
	}
	if diff := cmp.Diff(want, FromPod(claimedPod(), NewParser(10)), protocmp.Transform()); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestFromPodResolvesThePort(t *testing.T) {
	tests := []struct {
		annotation string
		want       uint16
		restarts   int32
		problem    bool
	}{
		{"web", 8080, 2, false},
		{"grpc", 9090, 2, false},
		{"9090", 9090, 2, false},
		{"7000", 7000, 9, false}, // undeclared: the first container's
		{"dns", 0, 9, true},      // UDP
		{"nosuch", 0, 9, true},
		{"", 0, 9, true},
		{"0", 0, 9, true},
		{"-1", 0, 9, true},
		{"65536", 0, 9, true},
	}
	for _, tt := range tests {
		p := claimedPod()
		p.Annotations[AnnotationPort] = tt.annotation
		got := FromPod(p, NewParser(1))
		if got.Port != tt.want || got.Restarts != tt.restarts || (got.Problem != "") != tt.problem {
			t.Errorf("annotation %q: port %d restarts %d problem %q, want %d %d %t", tt.annotation, got.Port, got.Restarts, got.Problem, tt.want, tt.restarts, tt.problem)
		}
	}
	p := claimedPod()
	p.Spec.Containers = nil
	if got := FromPod(p, NewParser(1)); got.Port != 0 || got.Problem == "" {
		t.Errorf("a pod without ports has port %d, problem %q", got.Port, got.Problem)
	}
}

func TestFromPodNamesWhatIsWrong(t *testing.T) {
	other := testFunction("t2")
	tests := []struct {
		name, annotation, value string
		want                    string // in the problem
		routable                bool
	}{
		{"protocol", AnnotationProtocol, "grpc", "set it to http1 or h2c", false},
		{"no JSON", AnnotationFunction, "{", "cannot be read", false},
		{"another tenant's function", AnnotationFunction, string(fn.Marshal(other)), "labels say otherwise", false},
		{"claimed for another tenant", AnnotationTenant, "t2", "the pod's label says \"t1\"", false},
		{"too large", AnnotationFunction, strings.Repeat("x", fn.MaxJSONBytes+1), "8 KiB", false},
		{"assigned-at", AnnotationAssignedAt, "yesterday", "RFC 3339", true},
		{"ready-at", AnnotationReadyAt, "\x00", "RFC 3339", false},
		{"draining-at", AnnotationDrainingAt, "now", "RFC 3339", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := claimedPod()
			p.Annotations[tt.annotation] = tt.value
			got := FromPod(p, NewParser(10))
			if !strings.Contains(got.Problem, tt.want) || got.Routable() != tt.routable {
				t.Errorf("problem %q routable %t, want %q %t", got.Problem, got.Routable(), tt.want, tt.routable)
			}
			if got.AssignedAt.IsZero() {
				t.Error("claimed pod without a time of its claim")
			}
		})
	}
}

func TestFromPodKnowsWhetherTheContainerRestartedSince(t *testing.T) {
	for count, want := range map[string]struct {
		state     State
		forgotten bool
		problem   string
	}{
		"2": {Ready, false, ""}, // claimedPod has restarted twice
		"1": {Assigned, true, ""},
		"3": {Assigned, true, ""},
		"x": {Ready, false, "want a number"},
	} {
		p := claimedPod()
		p.Annotations[AnnotationReadyRestarts] = count
		got := FromPod(p, NewParser(1))
		if got.State() != want.state || got.Forgotten != want.forgotten || !strings.Contains(got.Problem, want.problem) {
			t.Errorf("count %s: %s, forgotten %t, problem %q; want %+v", count, got.State(), got.Forgotten, got.Problem, want)
		}
	}
}

func TestFromPodTracesOfAClaim(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"empty tenant label": func(p *corev1.Pod) { p.Labels[LabelTenant] = "" },
		"function":           func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationFunction: ""} },
		"assigned-at":        func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationAssignedAt: ""} },
	} {
		p := claimedPod()
		delete(p.Labels, LabelTenant)
		p.Annotations = nil
		if got := FromPod(p, NewParser(1)); got.Marked || got.HasAnnotations {
			t.Fatalf("bare pod is marked")
		}
		change(p)
		if got := FromPod(p, NewParser(1)); !got.Marked || got.Routable() {
			t.Errorf("%s: marked %t routable %t", name, got.Marked, got.Routable())
		}
	}
}

func TestFromPodMadeWithAnnotationsOfAClaim(t *testing.T) {
	for key, want := range map[string]bool{AnnotationReadyAt: true, AnnotationDrainingAt: true, AnnotationPort: false} {
		p := claimedPod()
		delete(p.Labels, LabelTenant)
		p.Annotations = map[string]string{key: "8080"}
		got := FromPod(p, NewParser(1))
		if got.State() != Unassigned || got.Spoiled != want || (got.Problem != "") != want {
			t.Errorf("%s: %s spoiled %t, problem %q", key, got.State(), got.Spoiled, got.Problem)
		}
	}
}

func TestFromPodFindsTheController(t *testing.T) {
	p := claimedPod()
	p.OwnerReferences = []metav1.OwnerReference{
		{Kind: "ReplicaSet", Name: "not-controller"},
		{Kind: "Job", Name: "job", Controller: new(bool)},
		{Kind: "ReplicaSet", Name: "rs-2", UID: types.UID("r"), Controller: yes()},
	}
	got := FromPod(p, NewParser(1))
	if !got.OwnedByReplicaSet || got.ReplicaSet != "rs-2" || got.ControllerRef != 2 {
		t.Errorf("owned %t by %q at %d", got.OwnedByReplicaSet, got.ReplicaSet, got.ControllerRef)
	}
}

func FuzzFromPod(f *testing.F) {
	f.Add("t1", "t1", string(fn.Marshal(testFunction("t1"))), "2026-03-01T12:00:00Z", "web", "http1", "10.0.0.1", "5")
	f.Add("", "x", "{}", "", "65536", "h2c", "fe80::1%eth0", "-1")
	f.Add("t1", "", `{"namespace":"prod","deployment":"echo","tenant":"t1","scale":{"max_instances":1}}`, "0000-01-01T00:00:00Z", "-0", "", "::", "99999999999999999999")
	f.Fuzz(func(t *testing.T, label, tenant, function, at, port, protocol, ip, version string) {
		p := claimedPod()
		p.Labels[LabelTenant], p.Status.PodIP, p.ResourceVersion = label, ip, version
		p.Annotations = map[string]string{
			AnnotationTenant: tenant, AnnotationFunction: function, AnnotationAssignedAt: at,
			AnnotationReadyAt: at, AnnotationDrainingAt: at, AnnotationPort: port, AnnotationProtocol: protocol,
		}
		got := FromPod(p, NewParser(1))
		if got.Function != nil && (got.Key.Tenant != label || got.Key.Namespace != "prod" || got.Key.Deployment != "echo") {
			t.Errorf("pod of %q is taken for %s's", label, got.Key)
		}
		if got.Routable() || !got.Draining {
			t.Errorf("draining pod: routable %t draining %t", got.Routable(), got.Draining)
		}
		if got.Publishable() && got.Addr() == "" {
			t.Error("published without an address")
		}
		if strings.ContainsAny(got.Problem, "\n\x00") || len(got.Problem) > 2000 {
			t.Errorf("problem is not fit for a log: %q", got.Problem)
		}
	})
}

func TestParserRemembers(t *testing.T) {
	p := NewParser(1)
	a, err := p.Parse(string(fn.Marshal(testFunction("t1"))))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := p.Parse(string(fn.Marshal(testFunction("t1"))))
	if a != b {
		t.Error("the same text was parsed twice")
	}
	if _, err := p.Parse("{"); err == nil {
		t.Error("no error for broken JSON")
	}
	if c, _ := p.Parse(string(fn.Marshal(testFunction("t1")))); c == a {
		t.Error("the parser remembers more than its size")
	}
}

package claim

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testFunction(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}}
}

// podShapes are pods that must be claimable.
func podShapes() map[string]*corev1.Pod {
	annotated, second, odd := readyPod(2), readyPod(3), readyPod(4)
	annotated.Annotations = map[string]string{"kubernetes.io/x": "y"}
	second.OwnerReferences = append([]metav1.OwnerReference{{Kind: "Cluster", Name: "other", Controller: ptr(false)}, {Kind: "Node", Name: "n"}}, second.OwnerReferences...)
	odd.Annotations = map[string]string{pool.AnnotationReadyAt: "2020-01-01T00:00:00Z"}
	return map[string]*corev1.Pod{"no annotations": readyPod(1), "annotations": annotated, "controller is third": second, "left-over ready-at": odd}
}

func TestPatchClaims(t *testing.T) {
	f := testFunction("t1")
	for name, p := range podShapes() {
		t.Run(name, func(t *testing.T) {
			before := pool.FromPod(p, pool.NewParser(1))
			got, err := applyPatch(p, Patch(before, f, noon))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{
				pool.AnnotationTenant: "t1", pool.AnnotationFunction: string(fn.Marshal(f)),
				pool.AnnotationAssignedAt: "2026-03-01T12:00:00.000Z", pool.AnnotationReplicaSet: "echo-rs",
			}
			for k, v := range p.Annotations {
				want[k] = v
			}
			if diff := cmp.Diff(want, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if got.Labels[pool.LabelTenant] != "t1" {
				t.Errorf("labels %v", got.Labels)
			}
		})
	}
}

func TestPatchLosesWhenThePodIsNotWhatItWas(t *testing.T) {
	changes := map[string]func(*corev1.Pod){
		"another UID":              func(p *corev1.Pod) { p.UID = "other" },
		"tenant label":             func(p *corev1.Pod) { p.Labels[pool.LabelTenant] = "t0" },
		"empty tenant label":       func(p *corev1.Pod) { p.Labels[pool.LabelTenant] = "" },
		"function annotation":      func(p *corev1.Pod) { p.Annotations = map[string]string{pool.AnnotationFunction: "{}"} },
		"assigned-at annotation":   func(p *corev1.Pod) { p.Annotations = map[string]string{pool.AnnotationAssignedAt: ""} },
		"no owner":                 func(p *corev1.Pod) { p.OwnerReferences = nil },
		"owner no longer controls": func(p *corev1.Pod) { p.OwnerReferences[len(p.OwnerReferences)-1].Controller = ptr(false) },
		"owner of another kind":    func(p *corev1.Pod) { p.OwnerReferences[len(p.OwnerReferences)-1].Kind = "Job" },
		"owned by another one":     func(p *corev1.Pod) { p.OwnerReferences[len(p.OwnerReferences)-1].Name = "rs2" },
		"owner says nothing of it": func(p *corev1.Pod) { p.OwnerReferences[len(p.OwnerReferences)-1].Controller = nil },
		"annotations came or went": func(p *corev1.Pod) { p.Annotations = flip(p.Annotations) },
		"owner moved up the list": func(p *corev1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences[:0:0], metav1.OwnerReference{Kind: "X"}, p.OwnerReferences[0])
		},
		"all labels but ours vanish": func(p *corev1.Pod) { p.Labels = nil },
	}
	for shape, original := range podShapes() {
		for name, change := range changes {
			p := original.DeepCopy()
			patch := Patch(pool.FromPod(p, pool.NewParser(1)), testFunction("t1"), noon)
			change(p)
			_, err := applyPatch(p, patch)
			if err == nil {
				t.Errorf("%s, %s: claimed all the same", shape, name)
				continue
			}
			if v := Judge(nil, unprocessable(err)); v.Outcome != LostRace {
				t.Errorf("%s, %s: outcome %s, want lost_race", shape, name, v.Outcome)
			}
			if v := Judge(nil, err); v.Outcome != LostRace {
				t.Errorf("%s, %s: outcome of the bare text %q is %s", shape, name, err, v.Outcome)
			}
		}
	}
}

// flip is a pod's annotations gone, or others come.
func flip(m map[string]string) map[string]string {
	if m != nil {
		return nil
	}
	return map[string]string{"someone/else": "x", pool.AnnotationAssignedAt: "x"}
}

func TestJudge(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	internal := func(text string) error {
		return apierrors.NewGenericServerResponse(http.StatusInternalServerError, "PATCH", pods, "a", text, 0, true)
	}
	tests := []struct {
		name  string
		reply *corev1.Pod
		err   error
		want  Outcome
	}{
		{"claimed", readyPod(1), nil, Won},
		{"deleting", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr(metav1.NewTime(noon))}}, nil, LostDeleting},
		{"404", nil, apierrors.NewNotFound(pods, "a"), Gone},
		{"422 without a field", nil, unprocessable(errors.New("x")), LostRace},
		{"409", nil, apierrors.NewConflict(pods, "a", errors.New("x")), LostRace},
		{"500 with the text", nil, internal("testing value /x failed: test failed"), LostRace},
		{"500 without", nil, internal("etcd is down"), Unclear},
		{"422 invalid", nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Invalid(field.NewPath("x"), 1, "bad")}), Refused},
		{"403", nil, apierrors.NewForbidden(pods, "a", errors.New("rbac")), Refused},
		{"400", nil, apierrors.NewBadRequest("x"), Refused},
		{"429", nil, apierrors.NewTooManyRequests("x", 1), Unclear},
		{"503", nil, apierrors.NewServiceUnavailable("x"), Unclear},
		{"timeout", nil, apierrors.NewTimeoutError("x", 1), Unclear},
		{"no connection", nil, fmt.Errorf("dial: %w", errors.New("refused")), Unclear},
	}
	for _, tt := range tests {
		if got := Judge(tt.reply, tt.err); got.Outcome != tt.want || got.Reason == "" {
			t.Errorf("%s: %s (%s), want %s", tt.name, got.Outcome, got.Reason, tt.want)
		}
	}
}

func FuzzPatchEncodesAnything(f *testing.F) {
	f.Add("t1", "v2", "rs")
	f.Add(`","op":"remove`, "\x00\xff", "a/b~c")
	f.Fuzz(func(t *testing.T, tenant, metadata, replicaSet string) {
		p := readyPod(1)
		read := pool.FromPod(p, pool.NewParser(1))
		read.ReplicaSet = replicaSet
		fun := testFunction(tenant)
		fun.Metadata = metadata
		got, err := applyPatch(p, Patch(read, fun, noon))
		if replicaSet != "echo-rs" {
			if err == nil {
				t.Fatal("claimed from another ReplicaSet")
			}
			return
		}
		if err != nil || len(got.Annotations) != 4 || len(got.Labels) != 2 {
			t.Errorf("annotations %v labels %v: %v", got.Annotations, got.Labels, err)
		}
	})
}

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// The pod is gone, the watch does not show it, and a router says that requests
// to it fail.
func TestPodThatTheWatchStillShowsLeavesRouting(t *testing.T) {
	w := startWorld(t, 1, nil)
	f := function("a")
	got, err := w.get(f)
	if err != nil {
		t.Fatal(err)
	}
	w.until("it is known to be ready", func(pods []corev1.Pod) bool {
		return pods[0].Annotations[pool.AnnotationReadyAt] != ""
	})
	list := w.subscribe(xds.InstancesTypeURL, xds.InstancesName(fn.KeyOf(f)))
	list.until("the instance is listed", holds(t, got.GetUid()))
	w.api.PrependReactor("list", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		l, ok := a.(k8stesting.ListAction)
		byName := ok && l.GetListRestrictions().Fields.String() == "metadata.name="+got.GetName()
		return byName, &corev1.PodList{}, nil
	})
	_, err = w.client.Heartbeat(t.Context(), &skipperpb.HeartbeatRequest{RouterId: "r", Heartbeats: []*skipperpb.Heartbeat{
		{Function: f, FailuresByInstance: map[string]uint32{got.GetUid(): 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	list.until("the instance is listed no more", holds(t))
	if p, err := w.api.CoreV1().Pods(namespace).Get(t.Context(), got.GetName(), metav1.GetOptions{}); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pod was deleted on a router's word: %v", err)
	}
}

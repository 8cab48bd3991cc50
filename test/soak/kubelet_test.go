package soak

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"skipper/test/hollow"
)

// flat is a range of two addresses in front of an API server that is none.
type flat struct {
	t       *testing.T
	kube    *fake.Clientset
	kubelet *Kubelet
}

func newFlat(t *testing.T) *flat {
	t.Helper()
	f := &flat{t: t, kube: fake.NewClientset()}
	node, err := hollow.NewNode(t.Context(), f.kube, "n")
	if err != nil {
		t.Fatal(err)
	}
	f.kubelet = NewKubelet(KubeletConfig{
		Kube: f.kube, Node: node, Namespace: "n", Addresses: NewAddresses(2, FreedLast),
		Visit: func(Visit) Verdict { return Home }, Seed: 1, Problem: func(err error) { t.Error(err) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.kubelet.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f
}

func (f *flat) create(names ...string) {
	f.t.Helper()
	for _, name := range names {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), Labels: map[string]string{labelImage: string(Plain)}},
			Status:     corev1.PodStatus{Phase: corev1.PodPending},
		}
		if _, err := f.kube.CoreV1().Pods("n").Create(f.t.Context(), p, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// settled returns the names of the pods that have an address, once they are n,
// and fails the test if two share one.
func (f *flat) settled(n int, missing ...string) []string {
	f.t.Helper()
	for {
		pods, err := f.kube.CoreV1().Pods("n").List(f.t.Context(), metav1.ListOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		var names, ips []string
		for _, p := range pods.Items {
			if p.Status.PodIP != "" && !slices.Contains(missing, p.Name) {
				names, ips = append(names, p.Name), append(ips, p.Status.PodIP)
			}
		}
		slices.Sort(ips)
		if len(names) == n && len(slices.Compact(ips)) == n {
			return names
		}
		if !pause(f.t.Context(), tick/10) {
			f.t.Fatalf("pods with addresses: %v, want %d", names, n)
		}
	}
}

// Who finds no address waits, and gets the one that is freed next; a pod that is
// marked as deleted is let go when its process has ended.
func TestAddressGoesToWhoWaits(t *testing.T) {
	f := newFlat(t)
	f.create("a", "b")
	f.settled(2)
	f.create("c", "d")
	pods := f.kube.CoreV1().Pods("n")
	if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if names := f.settled(2); !slices.Equal(names, []string{"b", "c"}) {
		t.Errorf("%v have addresses, want b and c", names)
	}
	b, err := pods.Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	b.DeletionTimestamp, b.Finalizers = &now, []string{"soak/held"}
	if _, err := pods.Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if names := f.settled(2, "b"); !slices.Equal(names, []string{"c", "d"}) {
		t.Errorf("%v have addresses, want c and d", names)
	}
	if all, assigned := f.kubelet.Residents(); all != 2 || assigned != 0 {
		t.Errorf("%d pods, %d assigned", all, assigned)
	}
	if _, ok := f.kubelet.Kill(t.Context(), Forced); ok {
		t.Error("a pod without a tenant was killed")
	}
}

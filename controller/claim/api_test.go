package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skipper/controller/pool"
)

// fakeAPI is an API server for pods that only knows JSON patches. It applies
// them as the real one does, counts versions, and shows every write to its
// views as late as lag says.
type fakeAPI struct {
	corev1client.PodInterface

	// lag is how late the view with that index hears of a write; nil: at once.
	lag func(view int) time.Duration
	// delay is how long a patch is under way; nil: no time.
	delay func() time.Duration
	// fail may answer a patch with an error instead of applying it; nil: never.
	fail func(podName string) error
	// loses says that the answer to a patch that was applied is lost; nil: never.
	loses func(podName string) bool
	// unread may answer a read with an error; nil: never.
	unread func() error
	// letGo takes the owner off a claimed pod, as the ReplicaSet controller does.
	letGo bool

	mu sync.Mutex
	// The fields below are guarded by mu.
	version uint64
	pods    map[string]*corev1.Pod // by name
	views   []*pool.View
	claims  map[string][]string // tenants by pod, in order
	timers  sync.WaitGroup      // events under way
}

func newAPI(views ...*pool.View) *fakeAPI {
	return &fakeAPI{pods: map[string]*corev1.Pod{}, claims: map[string][]string{}, views: views}
}

func (a *fakeAPI) Pods(string) corev1client.PodInterface { return a }

// put creates or replaces a pod, as a user or the kubelet would.
func (a *fakeAPI) put(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.storeLocked(p.DeepCopy())
}

func (a *fakeAPI) storeLocked(p *corev1.Pod) {
	a.version++
	p.ResourceVersion = strconv.FormatUint(a.version, 10)
	a.pods[p.Name] = p
	read := pool.FromPod(p, pool.NewParser(1))
	for i, v := range a.views {
		if a.lag == nil {
			v.Apply(read)
			continue
		}
		a.timers.Add(1)
		time.AfterFunc(a.lag(i), func() {
			defer a.timers.Done()
			v.Apply(read)
		})
	}
}

func (a *fakeAPI) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	if a.delay != nil {
		timer := time.NewTimer(a.delay())
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if a.fail != nil {
		if err := a.fail(name); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pods[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	patched, err := applyPatch(p, data)
	if err != nil {
		return nil, unprocessable(err)
	}
	if a.letGo {
		patched.OwnerReferences = nil
	}
	a.claims[name] = append(a.claims[name], patched.Labels[pool.LabelTenant])
	a.storeLocked(patched)
	if a.loses != nil && a.loses(name) {
		return nil, errors.New("connection reset")
	}
	return patched.DeepCopy(), nil
}

// List reads one pod by its name.
func (a *fakeAPI) List(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	if a.unread != nil {
		if err := a.unread(); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &corev1.PodList{}
	if p, ok := a.pods[strings.TrimPrefix(o.FieldSelector, "metadata.name=")]; ok {
		out.Items = append(out.Items, *p.DeepCopy())
	}
	return out, nil
}

// unprocessable is how the API server words a patch that cannot be applied.
func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

func applyPatch(p *corev1.Pod, data []byte) (*corev1.Pod, error) {
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	return out, json.Unmarshal(after, out)
}

func ptr[T any](v T) *T { return &v }

// readyPod is a pod of pool prod/echo that can be claimed.
func readyPod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: fmt.Sprintf("echo-%02d", i), UID: types.UID(fmt.Sprintf("uid-%02d", i)),
			Labels:          map[string]string{pool.LabelDeployment: "echo"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "echo-rs", UID: "rs-uid", Controller: ptr(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i+1),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

package apistub

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// scheme is which kinds there are and how they are written.
type scheme struct {
	*runtime.Scheme
	codecs serializer.CodecFactory
	kinds  map[schema.GroupVersionResource]string
}

func newScheme() (*scheme, error) {
	s := &scheme{Scheme: runtime.NewScheme(), kinds: map[schema.GroupVersionResource]string{
		corev1.SchemeGroupVersion.WithResource("pods"):           "Pod",
		corev1.SchemeGroupVersion.WithResource("events"):         "Event",
		appsv1.SchemeGroupVersion.WithResource("replicasets"):    "ReplicaSet",
		coordinationv1.SchemeGroupVersion.WithResource("leases"): "Lease",
		metricsv1beta1.SchemeGroupVersion.WithResource("pods"):   "PodMetrics",
	}}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, metricsv1beta1.AddToScheme} {
		if err := add(s.Scheme); err != nil {
			return nil, fmt.Errorf("make scheme: %w", err)
		}
	}
	s.codecs = serializer.NewCodecFactory(s.Scheme)
	return s, nil
}

// stamp writes the object's kind into it, as encoders need it, and tells under
// which resource it is known.
func (s *scheme) stamp(o Object) (schema.GroupVersionResource, error) {
	kinds, _, err := s.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for gvr, kind := range s.kinds {
		if gvk := gvr.GroupVersion().WithKind(kind); gvk == kinds[0] {
			o.GetObjectKind().SetGroupVersionKind(gvk)
			return gvr, nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("%s is none of the kinds that are served", kinds[0].Kind)
}

// empty is a new object of the resource's kind, with a suffix such as List.
func (s *scheme) empty(gvr schema.GroupVersionResource, suffix string) (runtime.Object, error) {
	gvk := gvr.GroupVersion().WithKind(s.kinds[gvr] + suffix)
	o, err := s.New(gvk)
	if err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o, nil
}

func (s *scheme) listOf(gvr schema.GroupVersionResource, objects []Object, version uint64, next string) (runtime.Object, error) {
	list, err := s.empty(gvr, "List")
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, len(objects))
	for i, o := range objects {
		items[i] = o
	}
	return list, errors.Join(meta.SetList(list, items), listMeta(list, version, next))
}

// serializer is protobuf for who takes it, and JSON for all others.
func (s *scheme) serializer(r *http.Request) runtime.SerializerInfo {
	want := runtime.ContentTypeJSON
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		want = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), want) // both are always there
	return info
}

// selection is what a request asks for.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func selectionOf(r *http.Request) (selection, error) {
	query := r.URL.Query()
	out := selection{namespace: r.PathValue("namespace")}
	var labelsErr, fieldsErr error
	out.labels, labelsErr = labels.Parse(query.Get("labelSelector"))
	out.fields, fieldsErr = fields.ParseSelector(query.Get("fieldSelector"))
	if err := errors.Join(labelsErr, fieldsErr); err != nil {
		return out, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// matches knows no field but the name.
func (s selection) matches(o metav1.Object) bool {
	return o.GetNamespace() == s.namespace && s.labels.Matches(labels.Set(o.GetLabels())) &&
		s.fields.Matches(fields.Set{metav1.ObjectNameField: o.GetName()})
}

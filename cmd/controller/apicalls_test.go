package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestCallsToTheAPIServerAreCounted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			http.Error(w, "{}", http.StatusConflict)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1"}`)
	}))
	t.Cleanup(s.Close)
	calls := newAPICalls()
	cfg := &rest.Config{Host: s.URL}
	cfg.Wrap(calls.wrap)
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods := c.CoreV1().Pods("prod")
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if w, err := pods.Watch(t.Context(), metav1.ListOptions{}); err == nil {
		w.Stop()
	}
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err == nil {
		t.Error("Delete succeeds")
	}
	want := `
# HELP skipper_controller_api_requests_total Calls to the API server by verb and status code; code is error where no answer came.
# TYPE skipper_controller_api_requests_total counter
skipper_controller_api_requests_total{code="200",verb="create"} 0
skipper_controller_api_requests_total{code="200",verb="delete"} 0
skipper_controller_api_requests_total{code="409",verb="delete"} 1
skipper_controller_api_requests_total{code="200",verb="patch"} 0
skipper_controller_api_requests_total{code="200",verb="read"} 1
skipper_controller_api_requests_total{code="200",verb="update"} 0
skipper_controller_api_requests_total{code="200",verb="watch"} 1
`
	if err := testutil.CollectAndCompare(calls.requests, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	c.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
}

// broken is a transport without a network.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }

func TestVerbs(t *testing.T) {
	registry, calls := prometheus.NewRegistry(), newAPICalls()
	registry.MustRegister(calls.requests)
	transport := calls.wrap(broken{})
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "ODD-METHOD"} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		if answer, err := transport.RoundTrip(r); err == nil {
			_ = answer.Body.Close()
			t.Errorf("%s succeeds", method)
		}
	}
	for _, verb := range []string{verbRead, verbCreate, verbUpdate, verbPatch, verbDelete, verbOther} {
		if n := testutil.ToFloat64(calls.requests.WithLabelValues(verb, "error")); n != 1 {
			t.Errorf("%v calls %s failed, want 1", n, verb)
		}
	}
}

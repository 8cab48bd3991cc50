//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/proto/reason"
)

// badHeader is a request that is refused at the edge. In headers, NS and POOL stand for a namespace and a pool that exist.
type badHeader struct {
	name    string
	headers []string
	status  int
	reason  reason.Reason
	says    string
}

func badHeaders() []badHeader {
	good := `{"namespace":"NS","deployment":"POOL","tenant":"a","scale":{"max_instances":1}}`
	return []badHeader{
		{"missing", nil, 400, reason.HeaderMissing, "X-Skipper-Function"},
		{"repeated", []string{good, good}, 400, reason.HeaderRepeated, "X-Skipper-Function"},
		{"empty", []string{""}, 400, "", ""},
		{"not JSON", []string{`tenant=a`}, 400, reason.HeaderInvalid, "JSON"},
		{"cut short", []string{good[:len(good)-2]}, 400, reason.HeaderInvalid, "JSON"},
		{"two objects", []string{good + good}, 400, reason.HeaderInvalid, "JSON"},
		{"member twice", []string{strings.Replace(good, `{`, `{"tenant":"b",`, 1)}, 400, reason.HeaderInvalid, "tenant"},
		{"oversized", []string{strings.Replace(good, `{`, `{"metadata":"`+strings.Repeat("x", 9<<10)+`",`, 1)}, 400, reason.HeaderTooLarge, "8 KiB"},
		{"no tenant", []string{strings.Replace(good, `"tenant":"a",`, ``, 1)}, 400, reason.HeaderInvalid, "tenant"},
		{"tenant with a slash", []string{strings.Replace(good, `:"a"`, `:"a/b"`, 1)}, 400, reason.HeaderInvalid, "tenant"},
		{"tenant with a space", []string{strings.Replace(good, `:"a"`, `:"a b"`, 1)}, 400, reason.HeaderInvalid, "tenant"},
		{"tenant of 64", []string{strings.Replace(good, `:"a"`, `:"`+strings.Repeat("a", 64)+`"`, 1)}, 400, reason.HeaderInvalid, "tenant"},
		{"no scale", []string{strings.Replace(good, `,"scale":{"max_instances":1}`, ``, 1)}, 400, reason.HeaderInvalid, "scale"},
		{"no maximum", []string{strings.Replace(good, `"max_instances":1`, ``, 1)}, 400, reason.HeaderInvalid, "max_instances"},
		{"unknown namespace", []string{strings.Replace(good, `"NS"`, `"elsewhere"`, 1)}, 404, reason.NamespaceNotManaged, "elsewhere"},
		{"namespace of Skipper itself", []string{strings.Replace(good, `"NS"`, `"skipper-system"`, 1)}, 404, reason.NamespaceNotManaged, "skipper-system"},
		{"unknown deployment", []string{strings.Replace(good, `"POOL"`, `"nobody"`, 1)}, 404, reason.DeploymentNotFound, "nobody"},
	}
}

// Each bad request says why, and claims nothing.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	names := strings.NewReplacer(`"NS"`, `"`+functionNamespace+`"`, `"POOL"`, `"`+p.name+`"`)
	for _, row := range badHeaders() {
		t.Run(row.name, func(t *testing.T) {
			r := p.request(t.Context(), http.MethodGet, nil, "/", nil)
			for _, h := range row.headers {
				r.Header.Add(functionHeader, names.Replace(h))
			}
			row.check(t, p.send(r))
		})
	}
	p.wantClaims(t, "", 0)
	for _, namespace := range []string{systemNamespace, metav1.NamespaceDefault} {
		pods, err := p.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: tenantLabel})
		if err != nil || len(pods.Items) != 0 {
			t.Errorf("%d pods in namespace %s have a tenant, %v", len(pods.Items), namespace, err)
		}
	}
}

func (row badHeader) check(t *testing.T, a answer) {
	t.Helper()
	if a.status != row.status || row.reason != "" && a.reason() != row.reason {
		t.Errorf("want status %d, reason %q: %s", row.status, row.reason, a)
	}
	if a.reason() == "" || len(a.body) == 0 || !strings.Contains(string(a.body), row.says) {
		t.Errorf("want a reason, and a body that says %q: %s", row.says, a)
	}
}

func TestHealthWithoutHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a := w.get(t.Context(), nil, "/healthz"); a.status != http.StatusOK || a.reason() != "" {
		t.Errorf("want 200: %s", a)
	}
}

// An empty pool answers 503 after the hold time, and works as soon as it has pods.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 0)
	p.waitKnown(t, "a")
	a := p.get(t.Context(), p.function("a"), "/")
	wantUnavailable(t, a, reason.HoldTimeout)
	p.scale(t, 1)
	p.waitFull(t)
	mustEcho(t, p.get(t.Context(), p.function("a"), "/"))
	p.wantClaims(t, p.tenant("a"), 1)
}

// A client that says how long it waits is answered by then, while there is no pod.
func TestEmptyPoolKeepsTheDeadlineOfTheClient(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 0)
	p.waitKnown(t, "a")
	r := p.request(t.Context(), http.MethodGet, p.function("a"), "/", nil)
	r.Header.Set("Grpc-Timeout", "2S")
	wantUnavailable(t, p.send(r), reason.HoldTimeout)
}

// Requests that are held while the pool grows are served by the pods that come.
func TestHeldRequestsAreServedWhenThePoolGrows(t *testing.T) {
	t.Parallel()
	const tenants = 3
	p := newWorld(t).newPool(t, 0)
	p.waitKnown(t, "0")
	ctx, giveUp := context.WithTimeout(t.Context(), patience)
	defer giveUp()
	held := make(chan []answer, 1)
	go func() {
		held <- atOnce(tenants, func(i int) answer { return p.get(ctx, p.function(fmt.Sprint(i)), "/") })
	}()
	p.scale(t, 1)
	if n := distinct(podsOf(t, <-held)); n != tenants {
		t.Errorf("%d tenants were served by %d pods", tenants, n)
	}
}

// wantUnavailable checks an answer that Skipper gives in place of a function and that may be tried again later.
func wantUnavailable(t *testing.T, a answer, why reason.Reason) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || a.reason() != why {
		t.Errorf("want status 503, reason %q: %s", why, a)
	}
	if a.header.Get("Retry-After") == "" || len(a.body) == 0 {
		t.Errorf("want Retry-After and a body that says why: Retry-After %q, %s", a.header.Get("Retry-After"), a)
	}
}

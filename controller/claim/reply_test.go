package claim

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"skipper/controller/pool"
)

// canned is an API server that gives one answer to everything.
type canned struct {
	status int
	body   []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Request: r, StatusCode: c.status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(c.body)), ContentLength: int64(len(c.body)),
	}, nil
}

// FuzzReply has the API server answer a claim with anything: only a pod in a
// reply of success, which is not being deleted, is won; whatever is won can be
// read; and every verdict has its reason.
func FuzzReply(f *testing.F) {
	for _, body := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"u","annotations":{"skipper/function":"{}"}}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","deletionTimestamp":"2026-08-01T12:00:00Z"}}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"the server rejected our request due to an error in our request"}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"testing value /metadata/uid failed: test failed","code":500}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":null,"status":{"podIP":7}}`, `null`, `[]`, ``, `{`,
	} {
		for _, status := range []int{200, 404, 409, 422, 500} {
			f.Add(status, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		c, err := corev1client.NewForConfigAndClient(&rest.Config{Host: "http://api.invalid", QPS: -1}, &http.Client{Transport: canned{status, body}})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := c.Pods("prod").Patch(t.Context(), "a", types.JSONPatchType, []byte("[]"), metav1.PatchOptions{})
		v := Judge(reply, err)
		if v.Reason == "" {
			t.Errorf("%s without a reason", v.Outcome)
		}
		if v.Outcome == Won || v.Outcome == LostDeleting {
			if status >= 300 || (v.Outcome == Won) != (reply.DeletionTimestamp == nil) {
				t.Errorf("%s by status %d and %+v", v.Outcome, status, reply.ObjectMeta)
			}
			pool.FromPod(reply, pool.NewParser(1))
		}
	})
}

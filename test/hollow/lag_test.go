package hollow

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// What is late is complete and in order, and requests are seen on their way.
func TestLagProxyKeepsOrder(t *testing.T) {
	want := ""
	for i := range 200 {
		want += string(rune('a' + i%26))
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range want {
			_, _ = io.WriteString(w, string(c))
			w.(http.Flusher).Flush()
		}
	}))
	defer api.Close()
	before, after := make(chan string, 1), make(chan string, 1)
	proxy, err := LagProxy(&rest.Config{Host: api.URL}, 5*time.Millisecond, Hooks{
		Before: func(r *http.Request) { before <- r.URL.Path },
		After:  func(r *http.Request) { after <- r.URL.Path },
	})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	r, err := front.Client().Get(front.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	got, err := io.ReadAll(r.Body)
	if err != nil || string(got) != want {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
	if b, a := <-before, <-after; b != "/api/v1/pods" || a != b {
		t.Errorf("seen on its way: %q, %q", b, a)
	}
}

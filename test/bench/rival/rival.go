// Package rival is a plain Go router of the usual build: a reverse proxy that
// asks the controller for the address of every request. Benchmarks run it
// beside Envoy with extproc, so that a figure has something to stand against.
package rival

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"google.golang.org/grpc"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// DefaultTransport is Go's own, which keeps two idle connections per host.
func DefaultTransport() http.RoundTripper {
	return http.DefaultTransport.(*http.Transport).Clone() //nolint:forbidigo // being the default is the point of this rival
}

// KeepAliveTransport keeps as many idle connections as the load needs.
func KeepAliveTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forbidigo // a copy with limits of its own
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 4096
	t.IdleConnTimeout = 90 * time.Second
	t.DisableCompression = true
	return t
}

// instanceKey is where the handler leaves the instance for the proxy.
type instanceKey struct{}

// Handler routes every request by its X-Skipper-Function header. It is safe for
// concurrent use.
func Handler(conn grpc.ClientConnInterface, transport http.RoundTripper) http.Handler {
	client := skipperpb.NewControllerServiceClient(conn)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: rewrite}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := fn.Parse([]byte(r.Header.Get("X-Skipper-Function")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		res, err := client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f})
		cancel()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), instanceKey{}, res.GetInstance())))
	})
}

func rewrite(p *httputil.ProxyRequest) {
	i, _ := p.In.Context().Value(instanceKey{}).(*skipperpb.Instance)
	p.SetURL(&url.URL{Scheme: "http", Host: i.GetAddr()})
	p.SetXForwarded()
	p.Out.Host = p.In.Host
	p.Out.Header.Del("X-Skipper-Function")
	p.Out.Header.Set("X-Skipper-Instance", i.GetUid())
}

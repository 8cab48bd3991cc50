package envoy_test

import (
	"io"
	"net/http"
	"strconv"
	"syscall"
	"testing"

	"skipper/envoy/envoytest"
)

const upload = 5 << 20

// lengthPod answers with the length of the body, and spoilt if it is not all zeros.
func lengthPod(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
}

// silentAddr takes no connection and refuses none: its queue is full.
func silentAddr(t testing.TB) string {
	t.Helper()
	addr := refusingAddr(t)
	_, port, _ := splitPort(addr)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	here := &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Bind(fd, here); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(c) })
		_ = syscall.Connect(c, here) // in progress
	}
	return addr
}

func splitPort(addr string) (string, int, error) {
	i := len("127.0.0.1:")
	n, err := strconv.Atoi(addr[i:])
	return addr[:i-1], n, err
}

func TestBigBodies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		first func(testing.TB) string
	}{
		{"unknown", func(testing.TB) string { return unknown }},
		{"refused", refusingAddr},
		{"silent", silentAddr},
		{"misdirected", func(t testing.TB) string { return startPod(t, http.HandlerFunc(misdirected)).addr }},
	} {
		for _, chunked := range []bool{false, true} {
			for _, h2 := range []bool{false, true} {
				t.Run(row.name+strconv.FormatBool(chunked)+strconv.FormatBool(h2), func(t *testing.T) {
					t.Parallel()
					g := startGateway(t, nil)
					if h2 {
						p := new(http.Protocols)
						p.SetUnencryptedHTTP2(true)
						g.client.Transport = &http.Transport{Protocols: p}
					}
					first, pod := row.first(t), startPod(t, http.HandlerFunc(lengthPod))
					hosts := []string{pod.addr}
					if first != unknown {
						hosts = append(hosts, first)
					}
					g.pods(t, http1Cluster, hosts...)
					g.processor.route("fn", http1Cluster, first, pod.addr)
					for i := range 10 {
						req := g.request(t, http.MethodPost, "fn", io.LimitReader(zeros{}, upload))
						if !chunked {
							req.ContentLength = upload
						}
						a := g.do(t, req)
						if a.body != strconv.Itoa(upload) {
							t.Errorf("%d: %d %q %v", i, a.status, a.body, a.header["X-Skipper-Reason"])
						}
					}
					t.Log(g.processor.attempts())
					_, s, _ := g.Admin(t.Context(), "GET", "/stats?filter=retry_or_shadow")
					t.Log(s)
				})
			}
		}
	}
	_ = envoytest.FreePorts
}

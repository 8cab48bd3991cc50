package envoy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// countingPod is a pod that counts the requests that it was sent.
type countingPod struct {
	addr     string
	requests atomic.Int64
}

// startPod speaks HTTP/1 and HTTP/2 without TLS.
func startPod(t testing.TB, h http.Handler) *countingPod {
	t.Helper()
	p := &countingPod{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		h.ServeHTTP(w, r)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	p.addr = s.Listener.Addr().String()
	return p
}

// misdirected refuses every request as one for another pod, and does not wait
// for its body first, as Go does by itself.
func misdirected(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Connection", "close") // the unread body is in the way
	}
	w.Header().Set(envoy.HeaderMisdirected, "1")
	w.WriteHeader(http.StatusMisdirectedRequest)
	_, _ = io.WriteString(w, "not mine")
}

func misdirectingHost(t testing.TB) string {
	t.Helper()
	return startPod(t, http.HandlerFunc(misdirected)).addr
}

// unknownHost is one that no cluster holds.
func unknownHost(testing.TB) string { return "192.0.2.9:80" }

// refusingHost refuses connections.
func refusingHost(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", itoa(envoytest.FreePorts(t, 1)[0]))
}

// silentHost takes no connection and refuses none, because its queue is full.
func silentHost(t testing.TB) string {
	t.Helper()
	addr := refusingHost(t)
	here := &syscall.SockaddrInet4{Port: int(netip.MustParseAddrPort(addr).Port()), Addr: [4]byte{127, 0, 0, 1}}
	fd := socket(t, 0)
	if err := syscall.Bind(fd, here); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_ = syscall.Connect(socket(t, syscall.SOCK_NONBLOCK), here) // never done
	}
	return addr
}

func socket(t testing.TB, flags int) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	return fd
}

// streamRefusingHost speaks HTTP/2 and refuses every stream.
func streamRefusingHost(t testing.TB) string {
	t.Helper()
	return frames(t, func(f *http2.Framer, stream uint32) error {
		return f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
	})
}

// leavingHost speaks HTTP/2 and is about to leave whenever a request comes.
func leavingHost(t testing.TB) string {
	t.Helper()
	return frames(t, func(f *http2.Framer, _ uint32) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) })
}

// frames is an HTTP/2 server that answers each request with a frame.
func frames(t testing.TB, answer func(*http2.Framer, uint32) error) string {
	t.Helper()
	return listen(t, func(conn net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(conn, preface); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		if f.WriteSettings() != nil {
			return
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if frame.Header().Type == http2.FrameHeaders && answer(f, frame.Header().StreamID) != nil {
				return
			}
		}
	})
}

// listen serves connections with h, which it closes after it, until the end of
// the test.
func listen(t testing.TB, h func(net.Conn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

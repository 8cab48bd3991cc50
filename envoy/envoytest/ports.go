package envoytest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are taken from below the range from which Linux takes those of
// outgoing connections, so that no connection of another test is in the way.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// FreePorts returns n TCP ports that nobody listens on, and keeps other tests
// that ask here, in other processes too, from getting them while this one runs.
func FreePorts(t testing.TB, n int) []uint16 {
	t.Helper()
	ports := make([]uint16, 0, n)
	for range 1000 {
		if len(ports) == n {
			return ports
		}
		if p := uint16(firstPort + rand.IntN(lastPort-firstPort)); reserve(t, p) {
			ports = append(ports, p)
		}
	}
	t.Fatalf("found %d free ports, want %d", len(ports), n)
	return nil
}

// reserve marks a port as taken by a name in the abstract namespace of
// sockets, which the kernel frees with the process, and looks whether anybody
// listens on it. Envoys share ports, so looking alone would not do.
func reserve(t testing.TB, port uint16) bool {
	t.Helper()
	number := strconv.Itoa(int(port))
	mark, err := new(net.ListenConfig).Listen(t.Context(), "unix", "@skipper-test-port-"+number)
	if err != nil {
		return false
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("::", number))
	if err != nil {
		_ = mark.Close()
		return false
	}
	_ = l.Close()
	t.Cleanup(func() { _ = mark.Close() })
	return true
}

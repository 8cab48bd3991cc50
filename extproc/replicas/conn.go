package replicas

import (
	"context"
	"net"
	"time"
)

// dialer connects over TCP and watches the connection for silence.
func dialer(silence time.Duration) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &watched{conn, silence}, nil
	}
}

// watched fails a Read that waits for longer than silence. gRPC reads all the
// time, on one goroutine, and sets no deadlines of its own after the handshake.
type watched struct {
	net.Conn
	silence time.Duration
}

func (w *watched) Read(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.silence)); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

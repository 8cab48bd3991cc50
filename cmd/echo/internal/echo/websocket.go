package echo

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/coder/websocket"
	"go.uber.org/zap"
)

// serveWebSocket sends every message back, of the same kind and in the same order, from any origin and of any size.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil { // Accept has answered
		s.log.Debug("no WebSocket", zap.Error(err))
		return
	}
	defer func() { _ = conn.CloseNow() }() // an error only says that it is closed already
	conn.SetReadLimit(-1)                  // messages pass through in pieces
	for err == nil {
		err = repeat(r.Context(), conn)
	}
	s.log.Debug("WebSocket over", zap.Error(err))
}

func repeat(ctx context.Context, conn *websocket.Conn) error {
	kind, in, err := conn.Reader(ctx)
	if err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	out, err := conn.Writer(ctx, kind)
	if err != nil {
		return fmt.Errorf("begin message: %w", err)
	}
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy message: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end message: %w", err)
	}
	return nil
}

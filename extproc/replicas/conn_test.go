package replicas

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"
)

// peer is the other end of a watched connection.
type peer struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	pings  int
}

// connect returns a connection over which both ends have spoken.
func connect(t *testing.T) (net.Conn, *peer) {
	t.Helper()
	ours, theirs := net.Pipe()
	creds := Watch(insecure.NewCredentials(), WatchOptions{Log: zap.NewNop()}).Clone()
	conn, _, err := creds.ClientHandshake(t.Context(), "controller", ours)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, conn: theirs, framer: http2.NewFramer(theirs, theirs)}
	go func() {
		_, _ = io.WriteString(conn, http2.ClientPreface) // checked at the other end
		_ = http2.NewFramer(conn, nil).WriteSettings()
	}()
	if _, err := io.ReadFull(theirs, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	if f, err := p.framer.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatalf("first frame is %v, %v", f, err)
	}
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
	})
	return conn, p
}

// answer answers pings until the context ends, then reads no more.
func (p *peer) answer(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetReadDeadline(time.Now()) })
	defer stop()
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			_ = p.conn.SetReadDeadline(time.Time{})
			return
		}
		if f, ok := f.(*http2.PingFrame); ok {
			p.pings++
			_ = p.framer.WritePing(true, f.Data)
		}
	}
}

// lifetime reads until the connection breaks, and tells for how long it held.
func lifetime(conn net.Conn) time.Duration {
	begun := time.Now()
	_, _ = io.Copy(io.Discard, conn)
	return time.Since(begun)
}

func TestSilentPeerIsLeftWithinASecond(t *testing.T) {
	for _, life := range []time.Duration{0, time.Second, 10*time.Second + DefaultProbe/2} {
		synctest.Test(t, func(t *testing.T) {
			conn, p := connect(t)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), life)
				defer cancel()
				_ = p.framer.WriteSettings() // it speaks first
				p.answer(ctx)
				_, _ = io.Copy(io.Discard, p.conn) // the kernel still takes what is sent
			}()
			took := lifetime(conn) - life
			if least, most := (deadRounds-1)*DefaultProbe, (deadRounds+1)*DefaultProbe; took < least || took > most {
				t.Errorf("left %v after its last word, want %v to %v", took, least, most)
			}
		})
	}
}

// A peer that does not even take what is written is left as well.
func TestBlockedWriteIsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, p := connect(t)
		go func() { _ = p.framer.WriteSettings() }() // and nothing else: a pipe has no buffer
		if took := lifetime(conn); took > (deadRounds+1)*DefaultProbe {
			t.Errorf("left after %v", took)
		}
	})
}

func TestAnsweringPeerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, p := connect(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			_ = p.framer.WriteSettings()
			p.answer(ctx)
			_ = p.conn.Close()
		}()
		if held := lifetime(conn); held != time.Minute {
			t.Errorf("held for %v, want a minute", held)
		}
		if want := int(time.Minute / DefaultProbe); p.pings < want-1 || p.pings > want+1 {
			t.Errorf("%d pings in a minute, want %d", p.pings, want)
		}
	})
}

// A peer that speaks without ever answering a probe lives.
func TestAnyByteIsASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, p := connect(t)
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
		go func() {
			tick := time.NewTicker(2 * DefaultProbe)
			defer tick.Stop()
			for range 30 {
				_ = p.framer.WriteWindowUpdate(0, 1)
				<-tick.C
			}
			_ = p.conn.Close()
		}()
		if held := lifetime(conn); held != 30*2*DefaultProbe {
			t.Errorf("held for %v, want as long as it was spoken to", held)
		}
	})
}

// Nothing is written into a frame, and nothing before the peer has spoken.
func TestProbeWaitsForTheEndOfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, p := connect(t)
		go func() {
			_, _ = conn.Write([]byte("\x00\x00\x04\x00\x00\x00\x00\x00\x01ab"))
			_ = p.framer.WriteSettings() // only now, since the first probe follows at once
			timer := time.NewTimer(time.Minute)
			defer timer.Stop()
			<-timer.C
			_, _ = conn.Write([]byte("cd"))
		}()
		go lifetime(conn)
		f, err := p.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); !ok || string(d.Data()) != "abcd" {
			t.Errorf("frame is %v", f)
		}
		if f, err = p.framer.ReadFrame(); err != nil || f.Header().Type != http2.FramePing {
			t.Errorf("after it comes %v, %v, want a ping", f, err)
		}
	})
}

func TestCloseEndsTheWatchBeforeAnyWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := connect(t)
		synctest.Wait()
		_ = p.conn.SetReadDeadline(time.Now().Add(time.Minute))
		if f, err := p.framer.ReadFrame(); err == nil {
			t.Errorf("%v came before the peer has spoken", f)
		}
	})
}

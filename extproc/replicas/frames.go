package replicas

const (
	// clientPreface begins what an HTTP/2 client sends, before its first frame.
	clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHeader   = 9
)

// frames follows what an HTTP/2 client sends, to know where a frame may be put
// in between. The zero value is the start of a connection.
type frames struct {
	sent   int // bytes of the preface
	header []byte
	body   uint32 // bytes missing of the frame
	whole  int    // complete frames
}

// advance takes the next bytes.
func (f *frames) advance(b []byte) {
	n := min(len(clientPreface)-f.sent, len(b))
	f.sent += n
	for b = b[n:]; len(b) > 0; {
		b = f.frame(b)
	}
}

// frame takes the next part of a frame and returns the rest.
func (f *frames) frame(b []byte) []byte {
	if f.body == 0 {
		n := min(frameHeader-len(f.header), len(b))
		f.header, b = append(f.header, b[:n]...), b[n:]
		if len(f.header) < frameHeader {
			return b
		}
		f.body = uint32(f.header[0])<<16 | uint32(f.header[1])<<8 | uint32(f.header[2])
	}
	n := min(f.body, uint32(len(b))) //nolint:gosec // a larger b only makes n the body
	if f.body -= n; f.body == 0 {
		f.header = f.header[:0]
		f.whole++
	}
	return b[n:]
}

// between tells whether the last frame is complete. Before the client's first
// one, its settings, nothing may be sent.
func (f *frames) between() bool { return f.whole > 0 && len(f.header) == 0 }

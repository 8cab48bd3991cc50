// Package trust decides whether a request may have the function that its header
// names: what the header says, whether it must be signed and by whom, and what
// the listener that it came in by lets through.
//
// A Gate is read by every request and shared; nothing that it does for a header
// it has seen before allocates or locks. The public keys belong to the goroutine
// of Keys.Run, which publishes each new set as a whole, with a memory of verified
// tokens of its own: what was verified by a key that is gone is not believed.
package trust

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"skipper/proto/fn"
	"skipper/proto/reason"
	"skipper/proto/signed"

	"skipper/extproc/header"
)

// ListenerKey is the gRPC metadata in which Envoy's configuration names the
// listener that a request came in by. It is not a header of the request, so no
// client can set it.
const ListenerKey = "x-skipper-listener"

// Error is why a function is refused.
type Error struct {
	Reason reason.Reason
	// Message is for the client: what is wrong and what to do.
	Message string
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Gate reads function headers. Use New; safe for concurrent use.
type Gate struct {
	plain *header.Cache
	keys  *Keys
	rules Rules
}

// New returns a gate that remembers about the given number of plain headers. keys
// may be nil: then no token is taken.
func New(headers int, keys *Keys, rules Rules) *Gate {
	return &Gate{plain: header.NewCache(headers), keys: keys, rules: rules}
}

// PerListener reports whether it matters to Read by which listener a request
// came in.
func (g *Gate) PerListener() bool { return len(g.rules.listeners) > 0 }

// Read returns the function that a header names, if it may be had at now by who
// came in by the listener; "" is one that Envoy does not name. Errors are fn's
// and *Error, and are meant for the client.
func (g *Gate) Read(listener string, raw []byte, now time.Time) (*header.Function, error) {
	r := g.rules.of(listener)
	f, err := g.read(r, raw, now)
	if err != nil {
		return nil, err
	}
	if !r.allows(f.Key) {
		return nil, notAllowed(f.Key)
	}
	return f, nil
}

func (g *Gate) read(r *rule, raw []byte, now time.Time) (*header.Function, error) {
	if signed.Is(raw) {
		return g.keys.read(raw, now)
	}
	if r.signed {
		return nil, &Error{reason.FunctionUnsigned, "only signed functions are taken here: send the token that a key of this gateway has signed"}
	}
	m, err := g.plain.Read(raw, header.Parse)
	return m.Function, err
}

func notAllowed(k fn.Key) error {
	return &Error{reason.FunctionNotAllowed, "deployment " + k.Namespace + "/" + k.Deployment + " is not open to requests that come in here: use another gateway, or have it added to --allow-namespaces or --allow-deployments"}
}

// ListenerOf is the listener that Envoy names in the metadata of a stream; ""
// where it names none, or several, which only another caller than Envoy does.
func ListenerOf(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, ListenerKey); len(v) == 1 {
		return v[0]
	}
	return ""
}

package forward

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
)

// errDead ends the calls of a peer that has fallen silent.
var errDead = errors.New("peer has fallen silent")

// probesPerDeath is how often a peer is asked whether it lives, within the time
// after which its silence means death.
const probesPerDeath = 4

// peer is the connection to one other member. Safe for concurrent use.
type peer struct {
	ip     string
	cfg    PeersConfig
	conn   *grpc.ClientConn
	client skipperpb.ControllerServiceClient
	outbox *outbox

	// end closes gone, and with it all that the peer has running.
	end  context.CancelFunc
	gone <-chan struct{}

	mu sync.Mutex
	// The fields below are guarded by mu.
	calls  map[*lease]struct{}
	heard  time.Time     // when the peer last gave a sign of life
	silent bool          // declared dead, and no sign of life since
	asked  time.Time     // when the first probe without an answer was sent; zero: none
	empty  chan struct{} // closed while there are no calls
}

// lease is one call to the peer under way.
type lease struct {
	since  time.Time
	cancel context.CancelCauseFunc
}

func newPeer(ip string, cfg PeersConfig) (*peer, error) {
	conn, err := dial(ip, cfg)
	if err != nil {
		return nil, err
	}
	p := &peer{
		ip: ip, cfg: cfg, conn: conn, client: skipperpb.NewControllerServiceClient(conn), outbox: newOutbox(),
		calls: map[*lease]struct{}{}, empty: make(chan struct{}),
	}
	close(p.empty)
	conn.Connect()
	return p, nil
}

// close ends all of the peer; it may be called again.
func (p *peer) close() {
	p.end()
	p.mu.Lock()
	for l := range p.calls {
		l.cancel(errGone)
	}
	p.mu.Unlock()
	_ = p.conn.Close() // a second close is the only error
}

// drain returns when no call is left, or the peer is closed.
func (p *peer) drain() {
	p.mu.Lock()
	empty := p.empty
	p.mu.Unlock()
	select {
	case <-empty:
	case <-p.gone:
	}
}

// down tells whether a call to the peer would only waste time.
func (p *peer) down() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent || p.conn.GetState() == connectivity.TransientFailure
}

// call makes one call. Its error wraps errDead or errGone where the peer, not
// the caller, ended it.
func (p *peer) call(ctx context.Context, do func(context.Context, skipperpb.ControllerServiceClient) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := p.begin(cancel)
	err := do(ctx, p.client)
	p.finish(l, answered(err))
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errDead) || errors.Is(cause, errGone)) {
		return cause
	}
	return err
}

func (p *peer) begin(cancel context.CancelCauseFunc) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) == 0 {
		p.empty = make(chan struct{})
	}
	l := &lease{since: time.Now(), cancel: cancel}
	p.calls[l] = struct{}{}
	return l
}

func (p *peer) finish(l *lease, alive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, l)
	if len(p.calls) == 0 {
		close(p.empty)
	}
	if alive {
		p.heardLocked()
	}
}

func (p *peer) heardLocked() {
	p.heard, p.asked = time.Now(), time.Time{}
	if p.silent {
		p.silent = false
		p.cfg.Log.Info("peer answers again", zap.String("ip", p.ip))
	}
}

// answered tells whether an outcome proves that the peer lives: everything does
// that the peer itself must have said.
func answered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Unknown:
		return false
	}
	return true
}

// stayConnected reconnects whenever the connection has come to rest, as it does
// when the other end has closed it for its age.
func (p *peer) stayConnected(ctx context.Context) {
	for {
		state := p.conn.GetState()
		if state == connectivity.Idle {
			p.conn.Connect()
		}
		if !p.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// watch asks for signs of life, also while there are no calls: whoever comes
// from a replica that fell silent finds the next owner at once, and does not wait
// for the silence to be found out here too.
func (p *peer) watch(ctx context.Context) {
	period := p.cfg.DeadAfter / probesPerDeath
	tick := time.NewTicker(period)
	defer tick.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	last := time.Now()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
			now := time.Now()
			p.judge(now, now.Sub(last) > period+period/2)
			last = now
			if p.ask(n, now) {
				probes.Go(func() { p.probe(ctx) })
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask says whether to send a probe in the nth period, and notes it: in each while
// an answer is waited for, else in every other one.
func (p *peer) ask(n int, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n%2 > 0 && len(p.calls) == 0 && p.asked.IsZero() && !p.silent {
		return false
	}
	if p.asked.IsZero() {
		p.asked = now
	}
	return true
}

// probe asks for a sign of life; what the answer says does not matter.
func (p *peer) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DeadAfter)
	defer cancel()
	_, err := healthpb.NewHealthClient(p.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if answered(err) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.heardLocked()
	}
}

// judge ends the calls of a peer that has been silent for too long. Where we
// overslept, answers may lie unread: the peer is given more time.
func (p *peer) judge(now time.Time, overslept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if excused := now.Add(-p.cfg.DeadAfter / 2); overslept && p.heard.Before(excused) {
		p.heard = excused
	}
	dead := !p.asked.IsZero() && now.Sub(p.asked) >= p.cfg.DeadAfter
	for l := range p.calls {
		dead = dead || now.Sub(l.since) >= p.cfg.DeadAfter
	}
	if !dead || now.Sub(p.heard) < p.cfg.DeadAfter {
		return
	}
	if !p.silent {
		p.silent = true
		p.cfg.Metrics.deaths.Inc()
		p.cfg.Log.Warn("peer counts as dead: no sign of life", zap.String("ip", p.ip), zap.Duration("for", p.cfg.DeadAfter), zap.Int("calls", len(p.calls)))
	}
	for l := range p.calls {
		l.cancel(errDead)
	}
}

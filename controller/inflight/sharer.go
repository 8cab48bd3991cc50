package inflight

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	skipperpb "skipper/proto"
)

// replicas are the other members of the ring: *forward.Peers.
type replicas interface {
	Members() []string
	Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error
}

// shareInterval is how often the others are told: as often as Envoys report.
const shareInterval = time.Second

// Sharer tells the other replicas what the Envoys of this one have in progress.
type Sharer struct {
	store    *Store
	replicas replicas
	self     string
	log      *zap.Logger

	mu   sync.Mutex
	busy map[string]bool // members that are being told; guarded by mu
}

// NewSharer makes a sharer; self is this replica's IP.
func NewSharer(store *Store, others replicas, self string) *Sharer {
	return &Sharer{store: store, replicas: others, self: self, log: store.log, busy: map[string]bool{}}
}

// Run tells the others until ctx ends. Each is told by a goroutine of its own,
// at most one at a time: a slow one is passed over until it has taken the last
// message, and then gets the newest.
func (s *Sharer) Run(ctx context.Context) error {
	var telling sync.WaitGroup
	defer telling.Wait()
	tick := time.NewTicker(shareInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			s.share(ctx, now, &telling)
		}
	}
}

func (s *Sharer) share(ctx context.Context, now time.Time, telling *sync.WaitGroup) {
	members := s.replicas.Members()
	if len(members) == 0 {
		return
	}
	messages := s.store.Share(s.self, now)
	if len(messages) == 0 {
		return
	}
	for _, ip := range members {
		if !s.begin(ip) {
			s.store.metrics.shares.WithLabelValues(skipped).Inc()
			continue
		}
		telling.Go(func() {
			defer s.finish(ip)
			s.tell(ctx, ip, messages)
		})
	}
}

func (s *Sharer) begin(ip string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[ip] {
		return false
	}
	s.busy[ip] = true
	return true
}

func (s *Sharer) finish(ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, ip)
}

// tell gives up at the first failure: what follows is as old, and the next
// round is newer.
func (s *Sharer) tell(ctx context.Context, ip string, messages []*skipperpb.ShareLoadRequest) {
	ctx, cancel := context.WithTimeout(ctx, transit)
	defer cancel()
	for _, m := range messages {
		err := s.replicas.Call(ctx, ip, func(ctx context.Context, c skipperpb.ReplicaServiceClient) error {
			_, err := c.ShareLoad(ctx, m)
			return err
		})
		if err != nil {
			s.store.metrics.shares.WithLabelValues(failed).Inc()
			s.log.Debug("load not shared", zap.String("ip", ip), zap.Int("envoys", len(m.GetEnvoys())), zap.Error(err))
			return
		}
		s.store.metrics.shares.WithLabelValues(sent).Inc()
	}
}

package lifetime

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
	"skipper/xds"
	"skipper/xds/server"
)

// shards of the clusters are few, so that Envoy starts quickly.
const shards = 2

// Pools that the controller has, by deployment. Those of trouble begin with a
// pod that is of no use to the function, and go on with good ones.
const (
	poolHTTP1   = "http1"
	poolH2C     = "h2c"
	poolDead    = "dead"    // the first pod takes no connection
	poolStray   = "stray"   // the first pod takes itself for another's
	poolNowhere = "nowhere" // Envoy knows none
	poolRuins   = "ruins"   // none takes a connection
)

// controller stands in for the real one: it hands out pods in order and counts.
type controller struct {
	skipperpb.UnimplementedControllerServiceServer
	xds  *server.Server
	grpc *grpc.Server
	addr string
	pods *pods

	mu sync.Mutex
	// gate, if set, lets one question through for each value, and all when it
	// is closed.
	gate      chan struct{}
	waiting   int                              // questions before the gate
	asked     int                              // questions
	abandoned int                              // questions whose caller left
	made      map[string]int                   // pods handed out, by pool
	instances map[string][]*skipperpb.Instance // by resource name
	uids      map[string]map[string]bool       // of pods handed out, by tenant
	released  map[string]int                   // by UID
	beats     map[string]map[string]beat       // by router and resource name
	departed  map[string]bool                  // routers that have said goodbye
	version   uint64
}

// beat is what a router said last of a function.
type beat struct {
	inFlight uint32
	tenant   string
}

func startController(t testing.TB, p *pods) *controller {
	t.Helper()
	c := &controller{
		pods: p, made: map[string]int{}, instances: map[string][]*skipperpb.Instance{},
		uids: map[string]map[string]bool{}, released: map[string]int{}, beats: map[string]map[string]beat{}, departed: map[string]bool{},
	}
	c.xds = server.New(server.Options{Shards: shards, Source: c})
	c.xds.Apply(server.Change{Upsert: p.endpoints()})
	c.xds.Open()
	c.grpc = grpc.NewServer(server.ServerOptions()...)
	c.xds.Register(c.grpc)
	skipperpb.RegisterControllerServiceServer(c.grpc, c)
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.addr = ln.Addr().String()
	var running sync.WaitGroup
	running.Go(func() { _ = c.grpc.Serve(ln) }) // ends with Stop
	t.Cleanup(func() {
		c.grpc.Stop()
		c.xds.Close()
		running.Wait()
	})
	return c
}

// Instances implements server.Source.
func (c *controller) Instances(name string) (*skipperpb.FunctionInstances, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listLocked(name), true
}

func (c *controller) listLocked(name string) *skipperpb.FunctionInstances {
	return &skipperpb.FunctionInstances{Name: name, Instances: slices.Clone(c.instances[name]), Version: c.version}
}

func (c *controller) GetInstance(ctx context.Context, r *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	if !c.pass(ctx) {
		return nil, reason.Error(codes.DeadlineExceeded, reason.HoldTimeout, "no pod became ready")
	}
	i, list := c.assign(r.GetFunction(), r.GetExcludeInstanceNames())
	if !i.GetFunction().GetOneshot() {
		c.xds.Apply(server.Change{Instances: []*skipperpb.FunctionInstances{list}})
	}
	return &skipperpb.GetInstanceResponse{Instance: i}, nil
}

// pass waits before the gate, if there is one; false if the caller left.
func (c *controller) pass(ctx context.Context) bool {
	c.mu.Lock()
	c.asked++
	gate := c.gate
	c.waiting++
	c.mu.Unlock()
	left := false
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			left = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	if left {
		c.abandoned++
	}
	return !left
}

// assign answers with an instance that is not excluded: a known one, else a new one.
func (c *controller) assign(f *skipperpb.Function, exclude []string) (*skipperpb.Instance, *skipperpb.FunctionInstances) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := xds.InstancesName(fn.KeyOf(f))
	if !f.GetOneshot() {
		for _, i := range c.instances[name] {
			if !slices.Contains(exclude, i.GetName()) {
				return i, c.listLocked(name)
			}
		}
	}
	i := c.takeLocked(f, name)
	return i, c.listLocked(name)
}

func (c *controller) takeLocked(f *skipperpb.Function, name string) *skipperpb.Instance {
	pool := c.pods.choose(f.GetDeployment(), len(c.instances[name]))
	e := c.pods.endpoint(pool, c.made[pool])
	c.made[pool]++
	c.version++
	i := &skipperpb.Instance{
		Function: f, Name: "pod-" + e.UID, Uid: e.UID, Addr: e.Addr, Version: c.version,
		Cluster: xds.ClusterOf(e.Protocol, e.UID, shards),
	}
	c.instances[name] = append(c.instances[name], i)
	if c.uids[f.GetTenant()] == nil {
		c.uids[f.GetTenant()] = map[string]bool{}
	}
	c.uids[f.GetTenant()][e.UID] = true
	return i
}

func (c *controller) ReleaseInstance(_ context.Context, r *skipperpb.ReleaseInstanceRequest) (*skipperpb.ReleaseInstanceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released[r.GetInstance().GetUid()]++
	return &skipperpb.ReleaseInstanceResponse{}, nil
}

func (c *controller) Heartbeat(_ context.Context, r *skipperpb.HeartbeatRequest) (*skipperpb.HeartbeatResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := map[string]beat{}
	for _, b := range r.GetHeartbeats() {
		said[xds.InstancesName(fn.KeyOf(b.GetFunction()))] = beat{b.GetInFlightRequests(), b.GetFunction().GetTenant()}
	}
	if r.GetGoodbye() {
		c.departed[r.GetRouterId()] = true
		delete(c.beats, r.GetRouterId())
	}
	if !c.departed[r.GetRouterId()] { // one that was under way when it said goodbye comes too late
		c.beats[r.GetRouterId()] = said
	}
	return &skipperpb.HeartbeatResponse{}, nil
}

// forget drops what routers said that were killed, as the heartbeat timeout does.
func (c *controller) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.beats)
}

// inFlight is what routers last said of a tenant's functions.
func (c *controller) inFlight(tenant string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, said := range c.beats {
		for _, b := range said {
			if b.tenant == tenant {
				n += int(b.inFlight)
			}
		}
	}
	return n
}

// pooled is how many pods a tenant got, and how many of them were given back.
func (c *controller) pooled(tenant string) (taken, released int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.uids[tenant] {
		released += min(1, c.released[uid])
	}
	return len(c.uids[tenant]), released
}

// releasedTwice lists the pods that were given back more than once.
func (c *controller) releasedTwice() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, uid := range slices.Sorted(maps.Keys(c.released)) {
		if n := c.released[uid]; n > 1 {
			out = append(out, fmt.Sprintf("%s %d times", uid, n))
		}
	}
	return out
}

// see reads a value under the lock.
func see[T any](c *controller, f func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// shut closes the gate; the channel lets questions through.
func (c *controller) shut() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
	return c.gate
}

// open lets all questions through, from now on too.
func (c *controller) open(gate chan struct{}) {
	c.mu.Lock()
	c.gate = nil
	c.mu.Unlock()
	close(gate)
}

// function is what a request asks for. A tenant has one pool.
func function(pool, tenant string, oneshot bool) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: "prod", Deployment: pool, Tenant: strings.ToLower(tenant), Oneshot: oneshot,
		Scale: &skipperpb.Scale{MaxInstances: 1000},
	}
}

func header(pool, tenant string, oneshot bool) string {
	return string(fn.Marshal(function(pool, tenant, oneshot)))
}

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	skipperpb "skipper/proto"
	"skipper/xds"
)

// maxNames keeps a request, with names and versions, well below the 4 MiB at
// which a gRPC server refuses it.
const maxNames = 10_000

type stream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

// session runs one stream until it breaks.
func (c *Client) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.opts.Conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		return fmt.Errorf("open xDS stream: %w", err)
	}
	r := startReceiver(ctx, g)
	defer r.wait()
	defer cancel()
	return c.serve(ctx, g, r)
}

func (c *Client) serve(ctx context.Context, g stream, r *receiver) error {
	subscribed := false // nothing was asked for yet: an empty request would mean everything
	ready := r.ready
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
			ready = nil
			c.online(time.Now())
			c.forgetSent()
		case <-c.wake:
		case response := <-r.responses:
			if err := g.Send(c.accept(response)); err != nil {
				return fmt.Errorf("answer xDS response: %w", err)
			}
			continue
		case err := <-r.failed:
			return fmt.Errorf("receive xDS response: %w", err)
		}
		if ready != nil {
			continue // the server does not read before it knows the world
		}
		sent, err := send(g, c.requests(!subscribed))
		if err != nil {
			return err
		}
		subscribed = subscribed || sent
	}
}

func send(g stream, requests []*discoveryv3.DeltaDiscoveryRequest) (sent bool, err error) {
	for _, r := range requests {
		if err := g.Send(r); err != nil {
			return false, fmt.Errorf("send xDS request: %w", err)
		}
	}
	return len(requests) > 0, nil
}

// forgetSent forgets what was asked for on streams before this one.
func (c *Client) forgetSent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.todo)
	clear(c.sent)
	for name := range c.wanted {
		c.todo[name] = true
	}
}

// requests are those by which the controller learns what has changed in our
// wishes. The first on a stream names the versions that we have; names that
// do not fit into it are simply asked for again.
func (c *Client) requests(first bool) []*discoveryv3.DeltaDiscoveryRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*discoveryv3.DeltaDiscoveryRequest
	for names := range slices.Chunk(slices.Sorted(maps.Keys(c.todo)), maxNames) {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.InstancesTypeURL}
		for _, name := range names {
			if _, ok := c.wanted[name]; ok {
				r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
				c.sent[name] = true
			} else {
				r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, name)
				delete(c.sent, name)
			}
		}
		if first {
			if len(r.GetResourceNamesSubscribe()) == 0 {
				continue // nothing to end on a stream without subscriptions
			}
			first = false
			r.Node, r.InitialResourceVersions = c.opts.Node, c.versionsLocked(r.GetResourceNamesSubscribe())
		}
		out = append(out, r)
	}
	clear(c.todo)
	return out
}

func (c *Client) versionsLocked(names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		if v := c.wanted[name]; v != "" {
			out[name] = v
		}
	}
	return out
}

// accept delivers what can be read of a response and returns the answer to it.
func (c *Client) accept(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	var problems []error
	if r.GetTypeUrl() != xds.InstancesTypeURL {
		problems = append(problems, fmt.Errorf("type %q was not asked for", r.GetTypeUrl()))
		return reject(answer, problems)
	}
	for _, resource := range r.GetResources() {
		if err := c.deliver(resource); err != nil {
			problems = append(problems, err)
		}
	}
	for _, name := range r.GetRemovedResources() {
		if c.note(name, "") {
			c.opts.OnRemove(name)
		}
	}
	return reject(answer, problems)
}

// deliver hands on one list; a name that is no longer wanted is not an error.
func (c *Client) deliver(r *discoveryv3.Resource) error {
	m := &skipperpb.FunctionInstances{}
	if err := r.GetResource().UnmarshalTo(m); err != nil {
		return fmt.Errorf("read instances %q: %w", r.GetName(), err)
	}
	if m.GetName() != r.GetName() {
		return fmt.Errorf("read instances %q: message is about %q", r.GetName(), m.GetName())
	}
	if c.note(r.GetName(), r.GetVersion()) {
		c.opts.OnUpdate(m)
	}
	return nil
}

// note remembers the version that is being delivered, if the name is wanted.
func (c *Client) note(name, version string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.wanted[name]
	if ok {
		c.wanted[name] = version
	}
	return ok
}

// reject turns the answer into a rejection if there are problems.
func reject(answer *discoveryv3.DeltaDiscoveryRequest, problems []error) *discoveryv3.DeltaDiscoveryRequest {
	if err := errors.Join(problems...); err != nil {
		answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(err.Error(), "?")}
	}
	return answer
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"skipper/controller/acquire"
	"skipper/controller/assign"
	"skipper/controller/claim"
	"skipper/controller/events"
	"skipper/controller/forward"
	"skipper/controller/hearing"
	"skipper/controller/heartbeat"
	"skipper/controller/inflight"
	"skipper/controller/lease"
	"skipper/controller/limit"
	"skipper/controller/misfit"
	"skipper/controller/pool"
	"skipper/controller/publish"
	"skipper/controller/retire"
	"skipper/controller/ring"
	"skipper/controller/scale"
	"skipper/controller/server"
	"skipper/controller/state"
	"skipper/controller/supervise"
	"skipper/controller/suspect"
	"skipper/controller/trust"
	"skipper/controller/usage"
	"skipper/controller/watch"
	"skipper/controller/withdraw"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/identity"
	"skipper/proto/tracing"
	"skipper/xds"
	"skipper/xds/loads"
	xdsserver "skipper/xds/server"
)

// process is all parts of a running controller.
type process struct {
	settings
	logger   *zap.Logger
	registry *prometheus.Registry
	policy   scale.Policy // its StartedAt is that of the process
	hearing  *hearing.Hearing
	identity *identity.Identity // nil without TLS
	tracing  *tracing.Exporter  // nil where nothing is traced

	view      *pool.View
	functions *pool.Parser
	watch     *watch.Watch
	beats     *heartbeat.Store
	addresses *inflight.Addresses
	loads     *inflight.Store
	ring      *ring.Members
	peers     *forward.Peers
	forwarder *forward.Forwarder
	members   membership

	events   *events.Log
	recorder *events.Recorder
	misfits  *misfit.Watcher
	state    *state.Gatherer

	claimer     *claim.Claimer
	acquirer    *acquire.Acquirer
	retirer     *retire.Retirer
	usage       *usage.Reader
	supervisors *supervise.Supervisors

	xds       *xdsserver.Server
	lrs       *loads.Server
	gate      xdsGate
	tracker   *withdraw.Tracker
	leases    *lease.Keeper
	publisher *publish.Publisher
	suspects  *suspect.Watcher
	grpc      *grpc.Server
	health    *health.Server
	ready     readiness
}

// run serves until ctx ends or a part fails, and then stops in order.
func run(ctx context.Context, s settings, c clients, l listeners, logger *zap.Logger) error {
	p := &process{settings: s, logger: logger, registry: prometheus.NewRegistry()}
	namespaces, err := readable(ctx, c.background, s.FunctionNamespaces, s.SkipForbiddenNamespaces, logger)
	if err != nil {
		return err
	}
	p.buildState()
	p.buildEvents(c)
	if err := p.openTrust(); err != nil {
		return err
	}
	if err := p.openTracing(ctx); err != nil {
		return err
	}
	var stopped stopTime
	defer func() { p.flushSpans(ctx, stopped.load()) }()
	defer context.AfterFunc(ctx, stopped.store)()
	if err := p.buildWatch(c, namespaces); err != nil {
		return err
	}
	p.buildUsage(c, namespaces)
	if err := p.buildActors(c); err != nil {
		return err
	}
	p.buildRing(l)
	p.buildXDS(c)
	p.buildSuspects(c)
	p.buildVisibility()
	p.buildGRPC(c, namespaces)
	if err := trust.Check(p.grpc.GetServiceInfo()); err != nil {
		return err
	}
	logger.Info("serving", zap.Stringer("grpc", l.grpc.Addr()), zap.Stringer("web", l.web.Addr()),
		zap.String("pod_ip", s.PodIP), zap.Strings("function_namespaces", namespaces))
	if advice := xds.StalenessAdvice(s.TableStaleness); advice != "" {
		logger.Warn(advice)
	}
	err = p.serve(ctx, l)
	logger.Info("stopped", zap.Error(err))
	return err
}

func (p *process) buildState() {
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.policy = p.scalePolicy()
	p.hearing = hearing.New(p.HeartbeatTimeout / 2)
	p.view = pool.NewView()
	p.functions = pool.NewParser(pool.DefaultParserSize)
	p.beats = heartbeat.NewStore(p.HeartbeatTimeout, heartbeat.DefaultLimits())
	p.buildLoads()
}

func (p *process) buildWatch(c clients, namespaces []string) error {
	cfg := watch.Config{
		Client: c.background, FunctionNamespaces: namespaces, View: p.view, Functions: p.functions,
		OwnNamespace: p.Namespace, OwnSelector: p.ControllerSelector, OwnPods: p.sawReplicas,
		Registerer: p.registry, Log: p.logger,
	}
	if p.SingleControllerMode {
		cfg.OwnPods = nil
	}
	w, err := watch.New(cfg)
	p.watch = w
	return err
}

// buildActors makes what changes the cluster.
func (p *process) buildActors(c clients) error {
	key, err := signingKey(p.Config)
	if err != nil {
		return err
	}
	minter, err := assign.NewMinter(key)
	if err != nil {
		return err
	}
	stages := claim.NewMetrics(p.registry)
	p.claimer = claim.New(claim.Config{
		Pods: c.urgent, View: p.view, Functions: p.functions, Spread: p.spread, Allowed: p.allowed,
		Tenants: limit.NewTenants(p.TenantClaimsPerMinute, limit.DefaultTenants), Reserve: p.PoolReserve,
		Metrics: stages, Log: p.logger,
	})
	p.retirer = retire.New(retire.Config{
		Pods: c.background.CoreV1(), View: p.view, Functions: p.functions,
		Limits:   retire.Limits{Timeout: p.DrainTimeout},
		Progress: p.drained, Frozen: p.gate.blinded, Unreadable: 2 * p.FunctionAssignTimeout,
		Responsible: p.responsible, Grace: p.writeGrace(),
		Event: p.events.Add, Registerer: p.registry, Log: p.logger,
	})
	p.acquirer = acquire.New(acquire.Config{
		Claimer: p.claimer, Discarder: p.retirer, Refusals: assign.NewRefusals(assign.DefaultRefusalsSize),
		Poster: assign.NewPoster(assign.PosterConfig{Path: p.FunctionAssignPath, Timeout: p.FunctionAssignTimeout, Minter: minter, Log: p.logger}),
		View:   p.view, Functions: p.functions, Pods: c.urgent, Grace: p.writeGrace(),
		Stages: stages, Event: p.events.Add, Registerer: p.registry, Log: p.logger,
	})
	p.buildSupervisors()
	return nil
}

func (p *process) buildXDS(c clients) {
	source := &publish.Source{Pods: p.view, Shards: xds.DefaultShards}
	p.xds = xdsserver.New(xdsserver.Options{Source: source, Shards: xds.DefaultShards, Logger: p.logger, Registerer: p.registry})
	p.buildProgress(c)
	p.publisher = publish.New(p.view, p.xds, source, p.tracker, p.logger.Named("publish"), p.registry)
}

func (p *process) buildGRPC(c clients, namespaces []string) {
	p.grpc = server.NewGRPC(p.logger.Named("grpc"), p.registry, p.grpcOptions()...)
	p.xds.Register(p.grpc)
	p.lrs.Register(p.grpc)
	skipperpb.RegisterReplicaServiceServer(p.grpc, replicaService{loads: p.loads, progress: p.tracker, state: p.state})
	p.health = server.New(server.Options{
		Namespaces: namespaces, MaxInstancesLimit: p.MaxInstancesLimit, Shards: xds.DefaultShards,
	}, server.Deps{
		Pods: p.view, State: p.state, Heartbeats: p.beats, Acquirer: p.acquirer, Retirer: p.retirer, Supervisors: p.supervisors,
		Forwarder: accusations{farewells{p.forwarder, p.saidGoodbye, p.serves}, p.suspects}, Usage: p.usage, Live: p.live(c.urgent), Logger: p.logger.Named("server"), Registerer: p.registry,
	}).Register(p.grpc)
}

// responsible tells whether this replica scales the function. One whose view
// may be out of date scales none.
func (p *process) responsible(key fn.Key) bool {
	if p.gate.blinded() {
		return false
	}
	owner, ok := p.ring.Current().Owner(key.Hash())
	return ok && owner == p.PodIP
}

// callGrace and writeGrace divide the shutdown timeout: first calls and
// assignments may end, then what the acquirer, and after it the retirer, have
// left is written.
func (p *process) callGrace() time.Duration { return p.ShutdownTimeout * 3 / 5 }

func (p *process) writeGrace() time.Duration { return (p.ShutdownTimeout - p.callGrace()) / 2 }

// serve runs all parts. Those that take calls end with ctx; those that the
// calls need go on until the last one has ended.
func (p *process) serve(ctx context.Context, l listeners) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for name, part := range map[string]func(context.Context) error{
		"watch": p.watch.Run, "claimer": p.claimer.Run, "loads": p.shareLoads, "progress": p.followProgress, "usage": p.usage.Run, "hearing": p.hearing.Run, "suspects": p.suspects.Run,
		"recorder": p.recorder.Run, "misfits": p.misfits.Run, "acquirer and retirer": p.acquireAndRetire,
	} {
		g.Go(func() error { return wrap(name, part(background)) })
	}
	if p.identity != nil {
		g.Go(func() error { return wrap("identity", p.identity.Run(background)) })
	}
	g.Go(func() error { return wrap("publish", p.publish(ctx, background)) })
	supervised := make(chan struct{})
	g.Go(func() error {
		defer close(supervised)
		return wrap("supervise", p.supervise(ctx))
	})
	g.Go(func() error { return wrap("serve gRPC", p.serveGRPC(l.grpc)) })
	g.Go(func() error { return wrap("serve web", p.serveWeb(background, l.web)) })
	g.Go(func() error {
		<-ctx.Done()
		p.stopServing() //nolint:contextcheck // its time is callGrace, not that of ctx, which has ended
		<-supervised    // what they have under way is left to the acquirer, too
		stop()
		p.tellPeers() //nolint:contextcheck // its time is writeGrace, not that of ctx, which has ended
		return nil
	})
	return g.Wait()
}

// tellPeers ends the connections to the other replicas, which are sent before
// what nobody will say again: goodbyes of routers that stopped with us.
func (p *process) tellPeers() {
	ctx, cancel := context.WithTimeout(context.Background(), p.writeGrace())
	defer cancel()
	p.peers.Flush(ctx)
	p.peers.Close()
}

// acquireAndRetire stops the retirer after the acquirer, whose last act is to
// have it delete the pods of assignments that were cut short.
func (p *process) acquireAndRetire(ctx context.Context) error {
	retiring, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.retirer.Run(retiring) })
	g.Go(func() error {
		defer stop()
		return p.acquirer.Run(ctx)
	})
	return g.Wait()
}

func wrap(part string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return nil
}

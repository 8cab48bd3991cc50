package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/tracing"
	"skipper/xds"
	"skipper/xds/client"

	"skipper/extproc/controller"
	"skipper/extproc/heartbeat"
	"skipper/extproc/hold"
	"skipper/extproc/metrics"
	"skipper/extproc/release"
	"skipper/extproc/replicas"
	"skipper/extproc/stream"
	"skipper/extproc/table"
	"skipper/extproc/trust"
)

// process is all parts of a running extproc.
type process struct {
	cfg      *config
	log      *zap.Logger
	identity *identity.Identity // nil without TLS
	conn     *grpc.ClientConn
	api      skipperpb.ControllerServiceClient
	registry *prometheus.Registry
	metrics  *metrics.Metrics
	tracing  *tracing.Exporter // nil where nothing is traced
	xds      *client.Client
	table    *table.Table
	hall     *hold.Hall
	releaser *release.Releaser
	keys     *trust.Keys // nil without public keys
	streams  *stream.Server
	grpc     *grpc.Server
	beats    heartbeat.Options
	ready    *readiness
}

// run serves until ctx ends, and then until what waits is answered.
func run(ctx context.Context, cfg *config) error {
	log, err := newLogger(cfg.logLevel, cfg.logFormat)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // stderr of a container cannot be synced
	tuneMemory(cfg)
	ln, err := listen(ctx, cfg.listen, cfg.socketMode)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }() // closed already, but for failures below
	var lc net.ListenConfig
	web, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.webHost, strconv.Itoa(int(cfg.webPort))))
	if err != nil {
		return fmt.Errorf("listen for /metrics: %w", err)
	}
	defer func() { _ = web.Close() }()
	hooks, err := listenLifecycle(ctx, cfg)
	if err != nil {
		return err
	}
	p, err := build(cfg, log) //nolint:contextcheck // what waits and is released outlives the signal to stop
	if err != nil {
		return err
	}
	log.Info("serving", zap.String("listen", cfg.listen), zap.Stringer("web", web.Addr()),
		zap.String("controllers", p.conn.Target()), zap.String("router_id", p.beats.Router.ID), zap.String("envoy_node_id", cfg.envoyNodeID))
	if advice := xds.StalenessAdvice(cfg.tableStaleness); advice != "" {
		log.Warn(advice)
	}
	err = p.serve(ctx, ln, web, hooks)
	log.Info("stopped", zap.Error(err))
	return err
}

// build makes all parts; nothing but the releaser runs yet.
func build(cfg *config, log *zap.Logger) (*process, error) {
	registry := prometheus.NewRegistry()
	creds, id, err := openTrust(cfg, log, registry)
	if err != nil {
		return nil, err
	}
	exporter, err := tracing.Open(context.Background(), tracing.Options{
		Service: "skipper-extproc", Instance: cfg.envoyNodeID, Endpoint: cfg.otlpEndpoint, Lookup: os.LookupEnv, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	target := replicas.Target(cfg.controllerHost, strconv.Itoa(int(cfg.controllerPort)))
	conn, err := controller.Dial(target, replicas.Watch(creds, replicas.WatchOptions{Log: log.Named("replicas")}), dialOptions(exporter)...)
	if err != nil {
		return nil, err
	}
	p := &process{cfg: cfg, log: log, identity: id, tracing: exporter, conn: conn, api: skipperpb.NewControllerServiceClient(conn), registry: registry}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.metrics = metrics.New(p.registry)
	router := heartbeat.Router{IP: cfg.routerIP, ID: uuid.NewString(), EnvoyNodeID: cfg.envoyNodeID, StartedAt: time.Now()}
	p.xds = client.New(client.Options{Conn: conn, Node: node(cfg, router.ID), Logger: log, OnUpdate: p.pushed})
	p.table = table.New(table.Options{
		Subscriber: p.xds, Staleness: cfg.tableStaleness, Confirm: cfg.confirmTimeout, Idle: cfg.functionIdle, Most: cfg.tableSize, Zone: cfg.zone,
		Woken: func(name string) { p.hall.Wake(name) }, Now: time.Now(),
	})
	gate, err := p.openGate()
	if err != nil {
		return nil, err
	}
	p.buildStreams(gate)
	metrics.Watch(p.registry, metrics.Sources{
		Waiting: p.hall.Waiting, Functions: p.table.Size, TableAge: func() time.Duration { return p.table.Age(time.Now()) },
	})
	p.beats = heartbeat.Options{Client: p.api, Table: p.table, Router: router, Interval: cfg.heartbeatInterval, Beat: p.metrics.Beat, Logger: log.Named("heartbeat")}
	p.ready = &readiness{}
	return p, nil
}

func (p *process) buildStreams(gate *trust.Gate) {
	cfg := p.cfg
	p.releaser = release.Start(p.api, p.metrics, p.log.Named("release"))
	p.hall = hold.New(hold.Options{
		Asker:       &controller.Source{Client: p.api, Table: p.table, Observer: p.metrics},
		PerFunction: cfg.holdPerFunction, PerTenant: cfg.holdPerTenant, Total: cfg.holdTotal,
		Attempts: cfg.attempts, Backoff: cfg.backoff, MaxBackoff: cfg.maxBackoff,
		Orphan: func(i *table.Instance) { p.releaser.Add(i.Proto) },
	})
	p.streams = stream.NewServer(stream.Options{
		Trust: gate, Tracer: p.tracing.Tracer(), Table: p.table, Hall: p.hall, Metrics: p.metrics, Logger: p.log.Named("stream"),
		Release: p.releaser.Add, HoldTimeout: cfg.holdTimeout, LostLease: cfg.lostLease,
		Attempts: cfg.attempts, Backoff: cfg.backoff, MaxBackoff: cfg.maxBackoff, Quarantine: cfg.quarantine,
	})
	p.grpc = newGRPCServer(p.streams)
}

// dialOptions are those of the connection to the controllers.
func dialOptions(e *tracing.Exporter) []grpc.DialOption {
	options := replicas.DialOptions(replicas.Options{})
	if e.Tracer() != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(tracing.ClientInterceptor()))
	}
	return options
}

// pushed takes a list from xDS; the client acknowledges it when this returns.
func (p *process) pushed(fi *skipperpb.FunctionInstances) { p.table.Push(fi, time.Now()) }

// node is how the controllers know this subscriber.
func node(cfg *config, id string) *corev3.Node {
	n := &corev3.Node{Id: xds.ExtprocNode(id), Cluster: "skipper-extproc", UserAgentName: "skipper-extproc"}
	if cfg.zone != "" {
		n.Locality = &corev3.Locality{Zone: cfg.zone}
	}
	return n
}

// serve runs all parts until ctx ends or one of them fails.
func (p *process) serve(ctx context.Context, ln, web, hooks net.Listener) error {
	// Parts that the streams need outlive ctx: they end when the streams have.
	after := context.WithoutCancel(ctx)
	behind, stopBehind := context.WithCancel(after)
	defer stopBehind()
	back, behind := errgroup.WithContext(behind)
	back.Go(func() error { return ignoreEnd(behind, p.xds.Run(behind)) })
	back.Go(func() error { return heartbeat.Run(behind, p.beats) })
	back.Go(func() error { return p.sweep(behind) })
	if p.identity != nil {
		back.Go(func() error { return p.identity.Run(behind) })
	}
	if p.keys != nil {
		back.Go(func() error { return p.keys.Run(behind) })
	}
	back.Go(func() error { return p.serveWeb(behind, web) })
	if hooks != nil {
		back.Go(func() error { return p.serveLifecycle(behind, hooks) })
	}

	front, frontCtx := errgroup.WithContext(ctx)
	front.Go(func() error {
		if err := p.grpc.Serve(ln); err != nil {
			return fmt.Errorf("serve ext_proc: %w", err)
		}
		return nil
	})
	front.Go(func() error {
		select {
		case <-frontCtx.Done():
		case <-behind.Done():
		}
		p.stopStreams(after)
		return nil
	})
	err := front.Wait()
	p.stopBack(after)
	stopBehind()
	return firstError(err, back.Wait(), p.conn.Close())
}

// sweep keeps the table in order.
func (p *process) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		_, synced := p.xds.Synced()
		p.table.Sweep(time.Now(), synced)
		p.ready.set(synced)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sweepInterval is how exact the table's time limits are.
const sweepInterval = time.Second

// tuneMemory trades memory for less garbage collection, unless Go's own
// variables say otherwise.
func tuneMemory(cfg *config) {
	if os.Getenv("GOGC") == "" && cfg.gcPercent > 0 {
		debug.SetGCPercent(cfg.gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && cfg.memoryLimitMiB > 0 {
		debug.SetMemoryLimit(int64(cfg.memoryLimitMiB) << 20)
	}
}

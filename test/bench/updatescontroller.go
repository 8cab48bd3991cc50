package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"skipper/xds"
	"skipper/xds/loads"
	"skipper/xds/server"
)

const (
	// updatePatience bounds the wait for one update: a first world may be before it.
	updatePatience = 2 * time.Minute
	// updateLimit ends a row of updates that are slow.
	updateLimit = 30 * time.Second
	// updateNode is the node id of the Envoy that is measured.
	updateNode = "bench"
)

// updateWorld is a controller that has nothing but endpoints.
type updateWorld struct {
	xds    *server.Server
	acks   *acks
	shards int
	size   int
}

// endpoint is the i-th. With more than one shard the two families take turns.
func (w *updateWorld) endpoint(i int) server.Endpoint {
	p := xds.HTTP1
	if w.shards > 1 && i%2 == 1 {
		p = xds.H2C
	}
	return server.Endpoint{
		UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Addr: fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255), Protocol: p,
	}
}

// fill publishes the endpoints that stay.
func (w *updateWorld) fill() {
	var c server.Change
	for i := range w.size {
		c.Upsert = append(c.Upsert, w.endpoint(i))
	}
	w.xds.Apply(c)
	w.xds.Open()
}

// updateRow is what came of a row of updates.
type updateRow struct {
	Added []time.Duration // from an endpoint's arrival to the Envoy's acknowledgement
	Total int             // updates in all: each endpoint comes, and goes
	Took  time.Duration
}

// update has n endpoints come and go one by one. Every node acknowledges a step
// before the next one.
func (w *updateWorld) update(ctx context.Context, n, nodes int) (r updateRow, err error) {
	began := time.Now()
	for i := w.size; i < w.size+n && time.Since(began) < updateLimit; i++ {
		e := w.endpoint(i)
		took, err := w.step(ctx, e, server.Change{Upsert: []server.Endpoint{e}}, nodes)
		if err != nil {
			return r, err
		}
		r.Added = append(r.Added, took)
		if _, err := w.step(ctx, e, server.Change{Remove: []string{e.UID}}, nodes); err != nil {
			return r, err
		}
		r.Total += 2
	}
	r.Took = time.Since(began)
	return r, nil
}

func (w *updateWorld) step(ctx context.Context, e server.Endpoint, c server.Change, nodes int) (time.Duration, error) {
	wanted := w.acks.want(xds.ShardClusterOf(e.Protocol, e.UID, w.shards), nodes)
	w.xds.Apply(c)
	return wanted.wait(ctx, updateNode)
}

// noSink takes load reports and forgets them.
type noSink struct{}

func (noSink) Reported(loads.Stream, time.Time, []loads.Busy) {}
func (noSink) Ended(loads.Stream)                             {}

// serveUpdates runs a controller that serves endpoints alone, until ctx is done;
// what it is to do it is told at web.
func serveUpdates(ctx context.Context, addr, web, endpoints, shards string) error {
	size, err1 := strconv.Atoi(endpoints)
	n, err2 := strconv.Atoi(shards)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	w := &updateWorld{xds: server.New(server.Options{Shards: n}), acks: newAcks(), shards: n, size: size}
	l := loads.New(loads.Options{Sink: noSink{}, Shards: n, Registerer: reg})
	w.fill()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	g := grpc.NewServer(append(server.ServerOptions(), grpc.StreamInterceptor(w.acks.intercept))...)
	w.xds.Register(g)
	loadstatsv3.RegisterLoadReportingServiceServer(g, l)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	err = serve(ctx, web, w.control(l, reg))
	g.Stop()
	l.Close()
	w.xds.Close()
	return errors.Join(err, <-served)
}

// control is what the measuring program asks for.
func (w *updateWorld) control(l *loads.Server, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/known", func(out http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(out, w.acks.known()) // who asks sees what is missing
	})
	mux.HandleFunc("/update", w.serveUpdate)
	mux.HandleFunc("/reports", func(http.ResponseWriter, *http.Request) { l.Open() })
	return mux
}

func (w *updateWorld) serveUpdate(out http.ResponseWriter, r *http.Request) {
	n, err1 := strconv.Atoi(r.FormValue("n"))
	nodes, err2 := strconv.Atoi(r.FormValue("nodes"))
	if err := errors.Join(err1, err2); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	row, err := w.update(r.Context(), n, nodes)
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(out).Encode(row) // who asks sees what is missing
}

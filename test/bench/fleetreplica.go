package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	skipperpb "skipper/proto"
	"skipper/test/bench/internal/apistub"
	"skipper/test/bench/internal/proc"
	"skipper/test/hollow"
)

const (
	// fleetPatience bounds every wait for a controller.
	fleetPatience = 5 * time.Minute
	// fleetState bounds an answer about the whole cluster, as the CLI does.
	fleetState = 512 << 20
)

// fleet is a stub API server and the controllers that were started beside it.
type fleet struct {
	world    fleetWorld
	dir      string
	binary   string
	api      *apistub.Server
	web      *httptest.Server
	replicas []*fleetReplica
}

// startFleet serves the world; close must be called, also after an error.
func startFleet(world fleetWorld, dir, binary string) (*fleet, error) {
	server, err := apistub.New()
	if err != nil {
		return nil, err
	}
	f := &fleet{world: world, dir: dir, binary: binary, api: server, web: httptest.NewUnstartedServer(server)}
	f.web.EnableHTTP2 = true
	f.web.StartTLS()
	return f, errors.Join(
		server.Load(world.objects(time.Now())...),
		server.Compute(&metricsv1beta1.PodMetrics{}, world.metrics),
		f.writeKubeconfig(), hollow.WriteKey(f.keyFile()),
	)
}

// close ends everything, and tells of what the API server was asked in vain.
func (f *fleet) close() error {
	for _, r := range f.replicas {
		r.process.Stop()
	}
	f.web.CloseClientConnections()
	f.web.Close()
	if refused := f.api.Refused(); len(refused) > 0 {
		return fmt.Errorf("stub API server does not know %d requests, such as %s: the figures are not those of a cluster", len(refused), refused[0])
	}
	return nil
}

func (f *fleet) keyFile() string { return filepath.Join(f.dir, "fleet.pem") }

func (f *fleet) kubeconfig() string { return filepath.Join(f.dir, "fleet.kubeconfig") }

func (f *fleet) writeKubeconfig() error {
	c := api.NewConfig()
	c.Clusters["fleet"] = &api.Cluster{
		Server:                   f.web.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.web.Certificate().Raw}),
	}
	c.Contexts["fleet"] = &api.Context{Cluster: "fleet"}
	c.CurrentContext = "fleet"
	return clientcmd.WriteToFile(*c, f.kubeconfig())
}

// fleetReplica is a running controller.
type fleetReplica struct {
	fleet   *fleet
	ip      string
	process *proc.Process
	ready   time.Duration // from its start
}

const fleetPort, fleetWeb = 50153, 18082

func fleetIP(i int) string { return fmt.Sprintf("127.35.0.%d", i+1) }

func fleetAddr(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(fleetPort)) }

func (r *fleetReplica) url() string {
	return "http://" + net.JoinHostPort(r.ip, strconv.Itoa(fleetWeb))
}

// add starts one more controller and returns when it is ready and its pod says so.
func (f *fleet) add(ctx context.Context) (*fleetReplica, error) {
	r := &fleetReplica{fleet: f, ip: fleetIP(len(f.replicas))}
	if err := f.api.Put(f.world.controller(r.ip, false)); err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := proc.Start(ctx, f.dir, fmt.Sprintf("controller-%s-%d", r.ip, f.world.functions), f.binary,
		"--host", r.ip, "--pod-ip", r.ip, "--port", strconv.Itoa(fleetPort), "--web-port", strconv.Itoa(fleetWeb),
		"--kubeconfig", f.kubeconfig(), "--namespace", fleetOwn, "--function-namespaces", fleetNamespace,
		"--paseto-private-key-file", f.keyFile(), "--insecure-plaintext")
	if err != nil {
		return nil, err
	}
	r.process, f.replicas = p, append(f.replicas, r)
	if err := await(ctx, "controller "+r.ip+" is ready", 20*time.Millisecond, r.isReady); err != nil {
		return nil, err
	}
	r.ready = time.Since(began)
	return r, f.api.Put(f.world.controller(r.ip, true))
}

func (r *fleetReplica) isReady(ctx context.Context) (bool, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url()+"/readyz", nil)
	if err != nil {
		return false, err
	}
	a, err := (&http.Client{}).Do(q)
	if err != nil {
		return false, nil //nolint:nilerr // it does not listen yet
	}
	return a.StatusCode == http.StatusOK, a.Body.Close()
}

// gauge reads a metric without labels.
func (r *fleetReplica) gauge(ctx context.Context, name string) (float64, error) {
	m, err := hollow.Metric(ctx, r.url(), name, "")
	return m[""], err
}

// state asks for the whole cluster.
func (r *fleetReplica) state(ctx context.Context) (_ *skipperpb.ClusterState, err error) {
	conn, err := grpc.NewClient(fleetAddr(r.ip), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(fleetState)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	a, err := skipperpb.NewControllerServiceClient(conn).GetClusterState(ctx, &skipperpb.GetClusterStateRequest{})
	return a.GetClusterState(), err
}

package resource_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"skipper/xds"
	"skipper/xds/resource"
)

func TestClusterMatchesGolden(t *testing.T) {
	for name, c := range map[string]*clusterv3.Cluster{
		"http1.yaml":  resource.Cluster(xds.HTTP1, 7, resource.ClusterOptions{}),
		"routed.yaml": resource.Routed(xds.HTTP1, 7),
		"h2c.yaml":    resource.Cluster(xds.H2C, 255, resource.ClusterOptions{ConnectTimeout: 250 * time.Millisecond, IdleTimeout: time.Minute}),
	} {
		got := asYAML(t, c)
		path := filepath.Join("testdata", name)
		if flag.Lookup("update").Value.String() == "true" {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs (go test ./xds/resource -update rewrites it); got:\n%s", path, got)
		}
	}
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite the golden files")
	flag.Parse()
	os.Exit(m.Run())
}

func asYAML(t *testing.T, m proto.Message) []byte {
	t.Helper()
	j, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	y, err := yaml.JSONToYAML(j)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

func TestClusterIsAcceptedByItsOwnRules(t *testing.T) {
	for _, p := range []xds.Protocol{xds.HTTP1, xds.H2C} {
		if err := errors.Join(resource.Cluster(p, 0, resource.ClusterOptions{}).ValidateAll(), resource.Routed(p, 0).ValidateAll()); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestEqualClustersEncodeEqually(t *testing.T) {
	version := ""
	for range 50 {
		c := resource.Cluster(xds.H2C, 3, resource.ClusterOptions{})
		r, err := resource.Encode(c.GetName(), c)
		if err != nil {
			t.Fatal(err)
		}
		if version != "" && r.GetVersion() != version {
			t.Fatalf("version %q after %q for equal content", r.GetVersion(), version)
		}
		version = r.GetVersion()
	}
}

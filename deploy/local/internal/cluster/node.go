// Package cluster runs a real Kubernetes node on this machine: what its components are and how
// they are called, starting, checking and stopping them. All state is below one folder, and one
// process at a time owns it, by a file lock.
package cluster

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// Node is everything that tells one node from another. Address is the node's own address on
// its bridge, with the length of its pod range; the API server listens there too.
type Node struct {
	Name     string
	Bridge   string
	Address  netip.Prefix
	Services netip.Prefix
	DNS      netip.Addr
	MaxPods  int
	APIPort  int
	State    string
	Programs string
}

// DefaultNode is the one node of the local cluster. Its pod range holds 1022 addresses: more
// than the pods that may run, so that an address is not given again at once.
func DefaultNode(state, programs string) Node {
	return Node{
		Name:     "node1",
		Bridge:   "kcni0",
		Address:  netip.MustParsePrefix("10.244.0.1/22"),
		Services: netip.MustParsePrefix("10.96.0.0/16"),
		DNS:      netip.MustParseAddr("10.96.0.10"),
		MaxPods:  250,
		APIPort:  16443,
		State:    state,
		Programs: programs,
	}
}

// API is the URL of the API server.
func (n Node) API() string {
	return "https://" + netip.AddrPortFrom(n.Address.Addr(), uint16(n.APIPort)).String()
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (n Node) Kubeconfig() string { return filepath.Join(n.State, "admin.kubeconfig") }

// Environment is what the node's programs run with: their own folder first in PATH, and every
// temporary or cached file inside the state folder.
func (n Node) Environment() []string {
	return []string{
		"PATH=" + n.Programs + ":" + os.Getenv("PATH"),
		"HOME=" + n.State,
		"TMPDIR=" + filepath.Join(n.State, "tmp"),
		"KUBECACHEDIR=" + filepath.Join(n.State, "kubectl"),
	}
}

func (n Node) socket() string { return filepath.Join(n.State, "containerd.sock") }

func (n Node) program(name string) string { return filepath.Join(n.Programs, name) }

func (n Node) pki(name string) string { return filepath.Join(n.State, "pki", name) }

// ports lists what the component listens on, as host:port.
func (n Node) ports(component string) []string {
	host := n.Address.Addr().String()
	switch component {
	case "etcd":
		return []string{"127.0.0.1:12379", "127.0.0.1:12380"}
	case "kube-apiserver":
		return []string{host + ":" + strconv.Itoa(n.APIPort)}
	case "kube-controller-manager":
		return []string{"127.0.0.1:16257"}
	case "kube-scheduler":
		return []string{"127.0.0.1:16259"}
	case "kube-proxy":
		return []string{"127.0.0.1:10249", "127.0.0.1:10256"}
	case "kubelet":
		return []string{host + ":10250", "127.0.0.1:10248"}
	default:
		return nil
	}
}

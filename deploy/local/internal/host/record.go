// Package host changes the machine for a node (bridge, routes, kernel settings) and changes it
// back: before the first change it writes down what was there, and afterwards everything that
// was not is removed. The record file is the only state; one process at a time may use it.
package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sysctls are the kernel settings that the node's components change.
func sysctls() []string {
	return []string{
		"net/ipv4/ip_forward",
		"net/bridge/bridge-nf-call-iptables",
		"net/netfilter/nf_conntrack_max",
		"net/netfilter/nf_conntrack_tcp_timeout_established",
		"net/netfilter/nf_conntrack_tcp_timeout_close_wait",
		"net/ipv4/conf/all/route_localnet",
		"vm/overcommit_memory",
		"vm/panic_on_oom",
		"kernel/panic",
		"kernel/panic_on_oops",
		"kernel/keys/root_maxkeys",
		"kernel/keys/root_maxbytes",
	}
}

// paths are what containerd, CNI and kubelet make outside their own folders.
func paths() []string {
	return []string{
		"/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet",
		"/var/log/containers", "/var/log/pods", "/var/run/kubernetes", "/opt/containerd", "/run/calico",
	}
}

// Record is the machine before the node: the boot it belongs to, kernel settings by name, and
// which of the paths and network namespaces existed.
type Record struct {
	Boot       string            `json:"boot"`
	Sysctls    map[string]string `json:"sysctls"`
	Paths      []string          `json:"paths"`
	Namespaces []string          `json:"namespaces"`
}

// Look reads the machine as it is now.
func Look() Record {
	r := Record{Boot: Boot(), Sysctls: map[string]string{}}
	for _, name := range sysctls() {
		if value, err := readSysctl(name); err == nil {
			r.Sysctls[name] = value
		}
	}
	for _, path := range paths() {
		if _, err := os.Lstat(path); err == nil {
			r.Paths = append(r.Paths, path)
		}
	}
	r.Namespaces = namespaces()
	return r
}

// Boot identifies the current run of the kernel.
func Boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Save writes the record so that a crash leaves either none or a whole one.
func (r Record) Save(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode record of the machine: %w", err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, content, 0o644); err != nil {
		return fmt.Errorf("write record of the machine: %w", err)
	}
	return os.Rename(temp, path)
}

// Load reads a saved record; there is none if the error is fs.ErrNotExist.
func Load(path string) (Record, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Record{}, err
	}
	var r Record
	if err := json.Unmarshal(content, &r); err != nil {
		return Record{}, fmt.Errorf("read record of the machine: %w", err)
	}
	return r, nil
}

func readSysctl(name string) (string, error) {
	value, err := os.ReadFile(filepath.Join("/proc/sys", name))
	return strings.TrimSpace(string(value)), err
}

func writeSysctl(name, value string) error {
	if current, err := readSysctl(name); err == nil && current == value {
		return nil
	}
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set kernel setting %s: %w", strings.ReplaceAll(name, "/", "."), err)
	}
	return nil
}

func namespaces() []string {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// removeAll removes a path that may be a mount point's parent; what is absent is fine.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeWait is how long a cgroup or bridge may stay busy after its last process died.
const removeWait = 5 * time.Second

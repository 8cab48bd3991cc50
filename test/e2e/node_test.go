//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// process is a program of a pod, seen from the node.
type process struct {
	pid int
}

// processOf finds the program of a pod's container by its name. A test that needs one is skipped where the node is
// another machine.
func processOf(t *testing.T, pod *corev1.Pod, program string) process {
	t.Helper()
	skipUnlessNode(t, pod.Status.HostIP)
	var found []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !bytes.Contains(groups, []byte("pod"+string(pod.UID))) {
			continue // ended meanwhile, or somebody else's
		}
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if pid, isPid := strconv.Atoi(filepath.Base(dir)); err == nil && isPid == nil && strings.TrimSpace(string(name)) == program {
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		t.Fatalf("pod %s has processes %v named %s, want one", pod.Name, found, program)
	}
	return process{found[0]}
}

// skipUnlessNode skips the test where the node's address is not this machine's.
func skipUnlessNode(t *testing.T, node string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.String() == node {
			return
		}
	}
	t.Skipf("needs the processes of node %s, which is another machine", node)
}

// kill ends the process as a crash does: without a word.
func (p process) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill process %d: %v", p.pid, err)
	}
}

// resetPeak makes peakBytes begin anew at what the process uses now.
func (p process) resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// peakBytes is the most resident memory since resetPeak.
func (p process) peakBytes(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no VmHWM in %s", status)
	return 0
}

// dial connects from inside the process's network namespace. The thread that entered it is never used again.
func (p process) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // without unlock: the thread ends with the goroutine
		if err := enterNetwork(p.pid); err != nil {
			done <- result{err: err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// enterNetwork moves the calling thread into a process's network namespace.
func enterNetwork(pid int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return fmt.Errorf("open network namespace of %d: %w", pid, err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace of %d: %w", pid, err)
	}
	return nil
}

// systemPod is the only pod of one of Skipper's Deployments.
func (w *world) systemPod(t *testing.T, deployment string) *corev1.Pod {
	t.Helper()
	pods := w.systemPods(t, deployment)
	if len(pods) != 1 {
		t.Fatalf("deployment %s has %d pods, want 1", deployment, len(pods))
	}
	return &pods[0]
}

// systemPods are those of one of Skipper's Deployments, by name.
func (w *world) systemPods(t *testing.T, deployment string) []corev1.Pod {
	t.Helper()
	opts := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + deployment}
	pods, err := w.kube.CoreV1().Pods(w.system).List(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

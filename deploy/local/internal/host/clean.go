package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nftTables are kube-proxy's.
func nftTables() [][]string {
	return [][]string{{"ip", "kube-proxy"}, {"ip6", "kube-proxy"}}
}

// PodProcesses returns the processes in the cgroups of pods.
func PodProcesses() []int {
	seen := map[int]bool{}
	for _, root := range podCgroups() {
		_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Name() == "cgroup.procs" {
				for _, pid := range readPIDs(path) {
					seen[pid] = true
				}
			}
			return nil
		})
	}
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

func readPIDs(path string) []int {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// podCgroups are the top folders of pods in each hierarchy of version 1, or in version 2's.
func podCgroups() []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	v2, _ := filepath.Glob("/sys/fs/cgroup/kubepods")
	return append(v1, v2...)
}

// Restore takes away what a node left on the machine, given its state folder; all of its
// processes must have ended. It goes on after an error and returns all of them.
func (r Record) Restore(ctx context.Context, n Network, state string) error {
	errs := []error{
		unmount(r.ourMounts(state)),
		r.removeNamespaces(),
		n.remove(),
		deleteTables(ctx),
		removeCgroups(ctx),
		r.restoreSysctls(),
		r.removePaths(),
	}
	return errors.Join(errs...)
}

// ourMounts lists what is mounted below the state folder, below the paths that were not there
// before, and the namespaces of pods; the deepest first.
func (r Record) ourMounts(state string) []string {
	content, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	tops := []string{state}
	for _, path := range paths() {
		if !slices.Contains(r.Paths, path) {
			tops = append(tops, path)
		}
	}
	for _, name := range r.newNamespaces() {
		tops = append(tops, netnsPath(name))
	}
	// A point that another mount hides has no path and cannot be unmounted; it is not ours.
	return slices.DeleteFunc(mountsBelow(string(content), tops), func(point string) bool {
		_, err := os.Lstat(point)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// mountsBelow picks the mount points at or below one of tops from the text of a mounts file.
func mountsBelow(mounts string, tops []string) []string {
	var found []string
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		point := unescapeMount(fields[1])
		if slices.ContainsFunc(tops, func(top string) bool { return point == top || strings.HasPrefix(point, top+"/") }) {
			found = append(found, point)
		}
	}
	slices.Reverse(found)
	return found
}

// unescapeMount undoes the kernel's octal escapes of space, tab, newline and backslash.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func unmount(points []string) error {
	var errs []error
	for _, p := range points {
		if unix.Unmount(p, 0) == nil {
			continue
		}
		if err := unix.Unmount(p, lazyUnmount); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// newNamespaces are the network namespaces that CNI made since the record.
func (r Record) newNamespaces() []string {
	var names []string
	for _, name := range namespaces() {
		if strings.HasPrefix(name, "cni-") && !slices.Contains(r.Namespaces, name) {
			names = append(names, name)
		}
	}
	return names
}

func (r Record) removeNamespaces() error {
	var errs []error
	for _, name := range r.newNamespaces() {
		if err := removeAll(netnsPath(name)); err != nil {
			errs = append(errs, fmt.Errorf("remove namespace: %w", err))
		}
	}
	return errors.Join(errs...)
}

func deleteTables(ctx context.Context) error {
	var errs []error
	for _, t := range tablesLeft(ctx) {
		args := append([]string{"delete", "table"}, t...)
		if out, err := exec.CommandContext(ctx, "nft", args...).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("delete rules %s: %w: %s", strings.Join(t, " "), err, out))
		}
	}
	return errors.Join(errs...)
}

func tablesLeft(ctx context.Context) [][]string {
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if err != nil {
		return nil // without the program there were no rules
	}
	var left [][]string
	for _, t := range nftTables() {
		if strings.Contains(string(out), "table "+strings.Join(t, " ")+"\n") {
			left = append(left, t)
		}
	}
	return left
}

// removeCgroups removes the folders from the leaves up. The kernel keeps one busy for a moment
// after its last process, so it is tried until removeWait has passed.
func removeCgroups(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	ticker := time.NewTicker(removeWait / 50)
	defer ticker.Stop()
	for {
		for _, root := range podCgroups() {
			removeTree(root)
		}
		left := podCgroups()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroups %v: %w", left, ctx.Err())
		case <-ticker.C:
		}
	}
}

func removeTree(root string) {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		_ = unix.Rmdir(dir)
	}
}

// restoreSysctls does nothing after a reboot: the kernel has its own values then.
func (r Record) restoreSysctls() error {
	if r.Boot != Boot() {
		return nil
	}
	var errs []error
	for _, name := range sysctls() {
		value, known := r.Sysctls[name]
		if !known {
			continue
		}
		if current, err := readSysctl(name); err != nil || current == value {
			continue
		}
		errs = append(errs, writeSysctl(name, value))
	}
	return errors.Join(errs...)
}

func (r Record) removePaths() error {
	var errs []error
	for _, path := range paths() {
		if slices.Contains(r.Paths, path) {
			continue
		}
		if err := removeAll(path); err != nil {
			errs = append(errs, fmt.Errorf("remove what the node made: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Left says in words what of a node is still on the machine; nothing if it is clean.
func (r Record) Left(ctx context.Context, n Network, state string) []string {
	var left []string
	add := func(what string, items ...string) {
		for _, item := range items {
			left = append(left, what+" "+item)
		}
	}
	for _, pid := range PodProcesses() {
		add("process", strconv.Itoa(pid))
	}
	add("mount", r.ourMounts(state)...)
	add("namespace", r.newNamespaces()...)
	if n.Exists() {
		add("interface", n.Bridge)
	}
	for _, t := range tablesLeft(ctx) {
		add("rules", strings.Join(t, " "))
	}
	add("cgroup", podCgroups()...)
	add("path", r.newPaths()...)
	add("kernel setting", r.changedSysctls()...)
	return left
}

func (r Record) newPaths() []string {
	var found []string
	for _, path := range paths() {
		if _, err := os.Lstat(path); err == nil && !slices.Contains(r.Paths, path) {
			found = append(found, path)
		}
	}
	return found
}

func (r Record) changedSysctls() []string {
	if r.Boot != Boot() {
		return nil
	}
	var changed []string
	for _, name := range sysctls() {
		value, known := r.Sysctls[name]
		if current, err := readSysctl(name); known && err == nil && current != value {
			changed = append(changed, strings.ReplaceAll(name, "/", "."))
		}
	}
	return changed
}

package preflight

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FreeBytes is the space that the folder's file system has for root.
func FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("measure free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// Taken returns the addresses that cannot be listened on. An address that the machine does
// not have yet is tried on all interfaces instead.
func Taken(ctx context.Context, addresses []string) []string {
	var taken []string
	for _, address := range addresses {
		if !free(ctx, address) {
			taken = append(taken, address)
		}
	}
	return taken
}

func free(ctx context.Context, address string) bool {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		_, port, splitErr := net.SplitHostPort(address)
		if splitErr != nil || hasAddress(address) {
			return false
		}
		if listener, err = config.Listen(ctx, "tcp", net.JoinHostPort("", port)); err != nil {
			return false
		}
	}
	_ = listener.Close()
	return true
}

func hasAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.ParseIP(host)) {
			return true
		}
	}
	return net.ParseIP(host).IsLoopback()
}

// MissingPackages returns which of the named Debian packages are not there, judged by what
// they bring, so that the same thing from elsewhere counts.
func MissingPackages(ctx context.Context, names []string) []string {
	var missing []string
	for _, name := range names {
		if !present(ctx, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

func present(ctx context.Context, name string) bool {
	switch name {
	case "libc6-dev":
		return exists("/usr/include/stdio.h") && exists("/usr/lib/libc.a", "/usr/lib/*/libc.a", "/usr/lib64/libc.a")
	case "libseccomp-dev":
		return exists("/usr/include/seccomp.h") && exists("/usr/lib/*/libseccomp.a", "/usr/lib/libseccomp.a", "/usr/lib64/libseccomp.a")
	case "python3-pip":
		return exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Run() == nil
	case "nftables":
		return inPath("nft")
	default:
		return inPath(name)
	}
}

func inPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func exists(patterns ...string) bool {
	for _, p := range patterns {
		if found, err := filepath.Glob(p); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// HasApt tells whether missing packages can be installed.
func HasApt() bool { return inPath("apt-get") }

// GoFound tells whether the Go compiler can be called.
func GoFound() bool { return inPath("go") }

// Install installs system packages with apt-get.
func Install(ctx context.Context, names []string) error {
	if out, err := apt(ctx, "update", "-qq"); err != nil {
		return fmt.Errorf("run apt-get update: %w\n%s", err, out)
	}
	args := append([]string{"install", "-y", "-qq", "--no-install-recommends"}, names...)
	if out, err := apt(ctx, args...); err != nil {
		return fmt.Errorf("run apt-get install %v: %w\n%s", names, err, out)
	}
	return nil
}

func apt(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd.CombinedOutput()
}

// Package proc runs the programs that a benchmark measures and reads the
// processor time and the memory that each has used.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a program started by Start. Not safe for concurrent use.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  *os.File
}

// Start runs a program with its output in <dir>/<name>.log until Stop.
func Start(ctx context.Context, dir, name, path string, args ...string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("create log of %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	return &Process{name, cmd, log}, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the program and waits for it.
func (p *Process) Stop() {
	// An error here means that it has ended already.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	_ = p.log.Close()
}

// Kill ends the program as kill -9 does, and waits for it. Stop may follow.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	_ = p.cmd.Wait()
}

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for /proc.
const ticksPerSecond = 100

// CPU is the processor time that a process has used so far, user and system,
// to 10 ms.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time of %d: %w", pid, err)
	}
	return parseCPU(string(b))
}

// parseCPU takes fields 14 and 15 of a stat line; the name in field 2 may hold
// spaces and brackets, hence the cut at the last one.
func parseCPU(stat string) (time.Duration, error) {
	i := strings.LastIndexByte(stat, ')')
	f := strings.Fields(stat[i+1:])
	if i < 0 || len(f) < 13 {
		return 0, fmt.Errorf("read processor time: %q is no stat line", stat)
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}

// Memory is what a process has resident, in bytes: now, and at most so far.
func Memory(pid int) (now, peak uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read memory of %d: %w", pid, err)
	}
	return parseMemory(string(b))
}

func parseMemory(status string) (now, peak uint64, err error) {
	now, err1 := kilobytes(status, "VmRSS:")
	peak, err2 := kilobytes(status, "VmHWM:")
	return now, peak, errors.Join(err1, err2)
}

func kilobytes(status, name string) (uint64, error) {
	for line := range strings.Lines(status) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name && f[2] == "kB" {
			n, err := strconv.ParseUint(f[1], 10, 54)
			if err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory: there is no %s", name)
}

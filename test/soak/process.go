package soak

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// Process is a program that is started again and again with the same arguments.
// Its methods must be called by one goroutine at a time.
type Process struct {
	// Name in messages.
	Name string
	// Path of the program, and what it is given.
	Path string
	Args []string
	// Log gets all that the program writes.
	Log io.Writer

	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	ends []string // how it ended, each time; guarded by mu
}

// Start runs the program; it must not be running.
func (p *Process) Start() error {
	cmd := exec.Command(p.Path, p.Args...) //nolint:noctx // Kill and Stop end it
	cmd.Env = []string{"GOTRACEBACK=all"}
	cmd.Stdout, cmd.Stderr = p.Log, p.Log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		defer close(done)
		_ = cmd.Wait() // its state says the same
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ends = append(p.ends, cmd.ProcessState.String())
	}()
	return nil
}

// Running says whether the program runs.
func (p *Process) Running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal, such as SIGSTOP; to a program that has ended none.
func (p *Process) Signal(s syscall.Signal) {
	if p.Running() {
		_ = p.cmd.Process.Signal(s) // it may end at this moment
	}
}

// End sends a signal that ends the program, and waits until it has.
func (p *Process) End(s syscall.Signal) {
	if p.done == nil {
		return
	}
	p.Signal(s)
	p.Signal(syscall.SIGCONT)
	<-p.done
}

// Ends lists how the program ended so far, such as "signal: killed".
func (p *Process) Ends() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ends...)
}

// Pid of the program, 0 before the first start.
func (p *Process) Pid() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

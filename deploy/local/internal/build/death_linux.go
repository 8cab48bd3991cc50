package build

import "syscall"

// endWithParent lets the kernel interrupt a build whose starter was killed.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
}

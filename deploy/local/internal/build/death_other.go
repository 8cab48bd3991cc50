//go:build !linux

package build

import "syscall"

// endWithParent does nothing: only Linux tells a child of its parent's death.
func endWithParent() *syscall.SysProcAttr { return nil }

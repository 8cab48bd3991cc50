//go:build !linux

package host

import "github.com/vishvananda/netlink"

// Elsewhere the package compiles, so that the rest of the program can be used, and every call
// of it returns an error.
const (
	lazyUnmount = 0
	linkScope   = netlink.Scope(0)
	ipv4        = 0
)

package host

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	lazyUnmount = unix.MNT_DETACH
	linkScope   = netlink.SCOPE_LINK
	ipv4        = netlink.FAMILY_V4
)

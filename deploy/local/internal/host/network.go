package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Network is the node's bridge. Address is the node's own address with the length of the pod
// range; Services is the range of virtual addresses that the bridge must have a route for.
type Network struct {
	Bridge   string
	Address  netip.Prefix
	Services netip.Prefix
}

// Prepare makes the bridge, its address and route, and turns forwarding on. What is there
// already stays.
func (n Network) Prepare(ctx context.Context) error {
	if err := loadModules(ctx); err != nil {
		return err
	}
	link, err := n.bridge()
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: ipNet(n.Address)}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("give %s the address %s: %w", n.Bridge, n.Address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", n.Bridge, err)
	}
	// Virtual addresses need a route before they are translated: without one a machine with
	// no default route answers "network is unreachable", and elsewhere traffic to a Service
	// without endpoints would leave by the uplink.
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(n.Services.Masked()), Scope: linkScope}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s to %s: %w", n.Services, n.Bridge, err)
	}
	if err := writeSysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	// Pod to Service to pod on one bridge never passes the address translation without it.
	return writeSysctl("net/bridge/bridge-nf-call-iptables", "1")
}

func (n Network) bridge() (netlink.Link, error) {
	if link, err := netlink.LinkByName(n.Bridge); err == nil {
		return link, nil
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.Bridge}}); err != nil {
		return nil, fmt.Errorf("make bridge %s: %w", n.Bridge, err)
	}
	link, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return nil, fmt.Errorf("find bridge %s: %w", n.Bridge, err)
	}
	return link, nil
}

// Exists tells whether there is an interface of the bridge's name.
func (n Network) Exists() bool {
	_, err := netlink.LinkByName(n.Bridge)
	return err == nil
}

// Conflicts lists the routes of other interfaces that overlap the node's ranges.
func (n Network) Conflicts() ([]string, error) {
	routes, err := netlink.RouteList(nil, ipv4)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var found []string
	for _, r := range routes {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() {
			continue
		}
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil || link.Attrs().Name == n.Bridge {
			continue
		}
		if overlaps(r.Dst, n.Address.Masked()) || overlaps(r.Dst, n.Services.Masked()) {
			found = append(found, fmt.Sprintf("%s on %s", r.Dst, link.Attrs().Name))
		}
	}
	return found, nil
}

// remove deletes the interfaces on the bridge and the bridge.
func (n Network) remove() error {
	if !n.Exists() {
		return nil
	}
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.Bridge, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge.Attrs().Index {
			_ = netlink.LinkDel(l) // may vanish by itself with its namespace
		}
	}
	if err := netlink.LinkDel(bridge); err != nil {
		return fmt.Errorf("delete bridge %s: %w", n.Bridge, err)
	}
	return nil
}

// loadModules asks for the kernel modules that a node needs where they are not built in.
func loadModules(ctx context.Context) error {
	needed := map[string]string{
		"br_netfilter": "/proc/sys/net/bridge/bridge-nf-call-iptables",
		"overlay":      "/sys/module/overlay",
	}
	for module, sign := range needed {
		if _, err := os.Stat(sign); err == nil {
			continue
		}
		err := exec.CommandContext(ctx, "modprobe", module).Run()
		if _, missing := os.Stat(sign); missing != nil && module == "br_netfilter" {
			return fmt.Errorf("the kernel has no module %s, which Services need: %w", module, errors.Join(err, missing))
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func overlaps(a *net.IPNet, b netip.Prefix) bool {
	addr, ok := netip.AddrFromSlice(a.IP.To4())
	if !ok {
		return false
	}
	ones, _ := a.Mask.Size()
	return netip.PrefixFrom(addr, ones).Overlaps(b)
}

// netnsPath is where a named network namespace is mounted.
func netnsPath(name string) string { return filepath.Join("/run/netns", name) }

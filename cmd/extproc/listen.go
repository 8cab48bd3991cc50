package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listen opens the place where Envoy connects. A socket is made under another
// name and moved into place, so that Envoy finds the old or the new one at every
// moment, and never one with wrong permissions. The file stays when the listener
// is closed: by then it may be that of the next process.
func listen(ctx context.Context, place, mode string) (net.Listener, error) {
	var lc net.ListenConfig
	if !strings.HasPrefix(place, "/") {
		ln, err := lc.Listen(ctx, "tcp", place)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", place, err)
		}
		return ln, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(place), ".extproc-")
	if err != nil {
		return nil, fmt.Errorf("make room for socket %s: %w", place, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // an empty folder harms nobody
	temporary := filepath.Join(dir, "s")
	ln, err := lc.Listen(ctx, "unix", temporary)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", place, err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := publish(temporary, place, mode); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

func publish(temporary, place, mode string) error {
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil {
		return fmt.Errorf("read socket mode %q: %w", mode, err)
	}
	if err := os.Chmod(temporary, os.FileMode(bits)); err != nil {
		return fmt.Errorf("set permissions of socket %s: %w", place, err)
	}
	if err := os.Rename(temporary, place); err != nil {
		return fmt.Errorf("move socket to %s: %w", place, err)
	}
	return nil
}

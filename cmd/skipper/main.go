// Package main is skipper, the operator's command line: it shows what functions
// and pools do, acts on them, finds what is set up wrongly, renders the
// configuration of a gateway and makes certificates.
//
// The commands are here, one file each; what they need to know of a cluster is
// read by the packages below internal, and decided there without I/O.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(realWorld())
	callAs(root, os.Args[0])
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "skipper:", err)
		os.Exit(1)
	}
}

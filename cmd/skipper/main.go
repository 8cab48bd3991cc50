// Package main is skipper, the operator's command line: it renders the
// configuration of a gateway, makes certificates and tells its version.
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
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "skipper:", err)
		os.Exit(1)
	}
}

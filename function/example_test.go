package function_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"skipper/function"
)

// A whole function, as an author writes it.
func ExampleServe() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := function.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	greeting := "hello"
	cfg.OnAssign = func(_ context.Context, a function.Assignment) error {
		greeting = "hello, " + a.Tenant() // ordered before every request, since none passes earlier
		return nil
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, greeting) })
	if err := function.Serve(ctx, cfg, handler); err != nil {
		log.Fatal(err)
	}
}

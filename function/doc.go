// Package function is for authors of functions: it makes an HTTP server a member of a Skipper pool.
//
// A pod of a pool starts without a tenant. Skipper gives it one by an assignment, a POST that carries a signed
// token and the function as JSON. From then on the pod serves that tenant, and no other, until it is deleted.
// This package answers the assignment, and refuses every request that is meant for another pod, with 421 and the
// header x-skipper-misdirected: the proxy then finds the right pod. So a request never reaches another tenant's
// code, not even when the address of a deleted pod is given to a new one while some proxy has not heard of it.
//
// The short way is Serve, which does all of it, HTTP/1.1 and HTTP/2 without TLS (gRPC too) on one port, and stops
// in good order on the end of its context:
//
//	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//	defer stop()
//	cfg, err := function.FromEnv()
//	if err != nil {
//		log.Fatal(err)
//	}
//	log.Fatal(function.Serve(ctx, cfg, handler))
//
// The long way is New, which gives a Pod whose Handler method wraps any http.Handler.
//
// Who owns what: a Pod owns the assignment and publishes it once, as a value nobody changes afterwards. Nothing here
// calls Kubernetes or the controller, and nothing here reads a request's body. The token's format is the package
// token's subject.
package function

// Package e2e tests Skipper as its users meet it: on a running cluster, through the gateway, with the real API server,
// kubelet, Envoy, extproc and controller. Nothing is replaced, and nothing is reached that a user or an operator with
// root on the node could not reach.
//
// The files have the build tag e2e, since they need a cluster:
//
//	make up
//	go test -tags e2e -count=1 -timeout 30m ./test/e2e
//	go test -tags e2e -count=1 -v -run 'TestOneshot' ./test/e2e   # one test by hand
//
// KUBECONFIG names the cluster, else it is the one that "make up" started. SKIPPER_GATEWAY is the base URL of the
// gateway, by default the node port of the local cluster. Tests that look at processes on the node (memory of extproc,
// a killed controller, an IPv6 client) are skipped with a reason where the node is another machine.
//
// TestNoRequestIsLost... run for minutes, and with SKIPPER_E2E_LOSS_REQUESTS=20000 until each story has seen that many
// requests under heavier traffic (about half an hour in all; give -timeout 60m).
//
// TestStages shows what takes its time, on copies of the deployed Skipper in namespaces of their own, with their own
// gateways, and controllers that reach the API server through the test: scaling, a new image, an API server that is
// away (a minute, or as long as SKIPPER_E2E_OUTAGE says, such as 10m), a watch that stands still, and crashes in the
// middle of writes. It runs by itself for about four minutes.
//
// TestModes puts a gateway into pods of a user, as a sidecar and as parts of an Envoy that is there, with what the
// chart and the docs hand out; the controllers are the deployed ones.
//
// Each test makes pools of its own in namespace functions, with the image and key of the pool echo, and removes them.
// Tests that disturb a part of Skipper itself are not parallel, so they run before all others and alone. What a failed
// run leaves behind, the next one removes. After a failure the last lines of every Skipper container are printed once.
package e2e

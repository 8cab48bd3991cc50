package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skipper/cmd/skipper/internal/output"
	"skipper/cmd/skipper/internal/view"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// poolDeployment is one of docs/functions.md, but for a probe.
func poolDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "echo"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{pool.LabelDeployment: "echo"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pool.LabelTenant, Operator: metav1.LabelSelectorOpDoesNotExist}},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{pool.LabelDeployment: "echo"}},
				Spec:       functionPod("", "", nil).Spec,
			},
		},
	}
}

func TestWhatCommandsPrintIsGolden(t *testing.T) {
	t.Parallel()
	g := newStage(t, poolDeployment(), functionPod("echo-1", "acme", function("acme")))
	for name, args := range map[string]string{
		"functions.txt": "functions", "functions.json": "functions -o json", "functions.yaml": "functions -o yaml --tenant acme",
		"instances.txt": "instances", "instances.json": "instances -o json",
		"describe-function.txt": "describe function prod/echo/acme", "describe-function.json": "describe function prod/echo/acme -o json",
		"describe-instance.txt": "describe instance echo-2", "describe-instance.yaml": "describe instance uid-1 -o yaml",
		"events.txt": "events", "events-warnings.txt": "events -w --since 30m",
		"pools.txt": "pools", "pools.json": "pools -o json",
	} {
		got, err := g.run(t, strings.Fields(args)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		golden(t, name, got)
		switch {
		case strings.HasSuffix(name, ".json") && !json.Valid([]byte(got)):
			t.Errorf("%s is no JSON", name)
		case strings.HasSuffix(name, ".yaml"):
			if err := yaml.Unmarshal([]byte(got), new(any)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case strings.ContainsRune(got, 0x1b):
			t.Errorf("%s lets an escape through", name)
		}
	}
}

func TestFiltersAreTheControllersToApply(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	if _, err := g.run(t, "instances", "-n", "prod", "--deployment", "echo", "--tenant", "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.run(t, "events", "-n", "prod"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []*skipperpb.GetClusterStateRequest{
		{Namespace: "prod", Deployment: "echo", Tenant: "acme"}, {Namespace: "prod", WithoutSupervisors: true},
	} {
		if !proto.Equal(want, g.asked[i]) {
			t.Errorf("asked %v, want %v", g.asked[i], want)
		}
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	g.state.Replicas = append(g.state.Replicas, &skipperpb.ReplicaState{Ip: "10.0.0.9", UnreachableReason: "deadline exceeded"})
	out, err := g.run(t, "functions")
	if err != nil || !strings.Contains(out, "controller 10.0.0.9 did not answer") {
		t.Errorf("printed %q, %v", out, err)
	}
	for _, args := range []string{"describe function prod/echo/nobody", "describe instance nothing", "describe function nonsense", "events -f --every 0s"} {
		if _, err := g.run(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), ":") {
			t.Errorf("%s: error is %v", args, err)
		}
	}
}

// The first replica that can be reached answers; where none can, each says why.
func TestAnotherReplicaAnswers(t *testing.T) {
	t.Parallel()
	g := newStage(t, controllerPod("controller-0", "10.0.0.7"))
	if _, err := g.run(t, "functions"); err != nil {
		t.Error(err)
	}
	delete(g.addrs, "controller-a")
	_, err := g.run(t, "functions")
	if err == nil || !strings.Contains(err.Error(), "controller-0") || !strings.Contains(err.Error(), "controller-a") {
		t.Errorf("error is %v", err)
	}
}

func TestCompletionOffersNames(t *testing.T) {
	t.Parallel()
	g := newStage(t, functionPod("echo-1", "acme", function("acme")))
	for args, want := range map[string]string{
		"describe function p": "prod/echo/acme\n", "describe function x": "", "describe instance e": "echo-1\n", "functions -o j": "table\njson\nyaml\n",
	} {
		out, err := g.run(t, append([]string{"__complete"}, strings.Fields(args)...)...)
		if err != nil || !strings.HasPrefix(out, want+":4") {
			t.Errorf("%s: offered %q, %v", args, out, err)
		}
	}
}

// A tail shows each event once, whatever replicas restart or fail to answer.
func TestTailShowsEachEventOnce(t *testing.T) {
	t.Parallel()
	event := func(controller string, n uint64, start int) view.Event {
		at := clock.Add(time.Duration(start)*time.Hour + time.Duration(n))
		return view.Event{Controller: controller, Sequence: n, At: &at, Message: strings.Repeat("x", start)}
	}
	a1, a2, b1, again := event("a", 1, 1), event("a", 2, 1), event("b", 1, 1), event("a", 1, 2)
	rounds := [][]view.Event{{a1, b1}, {a1}, {a1, a2, b1}, {a2}, {}, {again, b1}, {again, b1}}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var out bytes.Buffer
		asked := 0
		ask := func(context.Context) ([]view.Event, error) {
			if asked++; asked > len(rounds) {
				stop()
				return nil, ctx.Err()
			}
			return rounds[asked-1], nil
		}
		start := time.Now()
		if err := tail(ctx, ask, time.Second, output.Printer{Out: &out, Format: output.JSON}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Duration(len(rounds))*time.Second {
			t.Errorf("took %v", took)
		}
		var got []string
		for d := json.NewDecoder(&out); d.More(); {
			var e view.Event
			if err := d.Decode(&e); err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Controller+e.At.Format("15"))
		}
		if s := strings.Join(got, " "); s != "a13 b13 a13 a14" {
			t.Errorf("shown: %s", s)
		}
		failing := func(context.Context) ([]view.Event, error) { return nil, errors.New("gone") }
		if err := tail(t.Context(), failing, time.Second, output.Printer{Out: &out}); err == nil {
			t.Error("a controller that is gone ends it without an error")
		}
	})
}

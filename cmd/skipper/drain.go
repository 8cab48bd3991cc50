package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"skipper/cmd/skipper/internal/view"
	"skipper/controller/pool"
	"skipper/proto/fn"
)

// pause between two looks at a pod that should go.
const pause = time.Second

// drainOptions are the flags of "drain".
type drainOptions struct {
	namespace string
	function  string
	wait      bool
}

func newDrain(w *world) *cobra.Command {
	b, o := newBase(w), &drainOptions{}
	b.timeout = 10 * time.Minute
	cmd := &cobra.Command{
		Use:   "drain INSTANCE... | drain --function FUNCTION",
		Short: "Take instances out of routing, and have them deleted when they are empty",
		Long: `Take instances out of routing, and have them deleted when they are empty.

It annotates their pods with skipper/draining-at, through Kubernetes: it works
while no controller does, who go on with it later, and needs the right to patch
pods. An instance is a pod's name or UID. Requests in progress go on, for the
controllers' --drain-timeout at most. A function in use gets other instances.`,
		Example: "  skipper drain echo-7d9f-abcde --wait\n  skipper drain --function functions/echo/me",
		RunE:    b.run(func(ctx context.Context, s *session) error { return o.run(ctx, s) }), ValidArgsFunction: b.complete(instanceNames),
	}
	b.addFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "`namespace` of the instances; empty: those that the controllers manage")
	f.StringVar(&o.function, "function", "", "drain all instances of this `function`")
	f.BoolVar(&o.wait, "wait", false, "wait until they are gone")
	_ = cmd.RegisterFlagCompletionFunc("function", b.complete(functionNames)) // fails for unknown flags only
	return cmd
}

func (o *drainOptions) run(ctx context.Context, s *session) error {
	pods, err := o.find(ctx, s)
	if err != nil {
		return err
	}
	all := []done{}
	for _, p := range pods {
		outcome, err := s.drain(ctx, p)
		if err != nil {
			return errors.Join(err, s.printer.Print(all, doneGrid(all)))
		}
		all = append(all, done{p.Name, p.Key.String(), outcome})
	}
	if o.wait {
		for i, p := range pods {
			if err := s.untilGone(ctx, p); err != nil {
				return errors.Join(err, s.printer.Print(all, doneGrid(all)))
			}
			all[i].Outcome = "gone"
		}
	}
	return s.printer.Print(all, doneGrid(all))
}

// find returns all pods that are meant, or none and what is wrong.
func (o *drainOptions) find(ctx context.Context, s *session) ([]pool.Pod, error) {
	if (o.function == "") == (len(s.args) == 0) {
		return nil, errors.New("name instances, or one function by --function")
	}
	if o.function != "" {
		f, err := view.ParseFunction(o.function)
		if err != nil {
			return nil, err
		}
		pods, err := s.podsOf(ctx, f)
		return slices.DeleteFunc(pods, func(p pool.Pod) bool { return p.Key != fn.KeyOf(f) }), err
	}
	known, err := s.tenantPods(ctx, o.namespace)
	if err != nil {
		return nil, err
	}
	var out []pool.Pod
	for _, name := range s.args {
		i := slices.IndexFunc(known, func(p pool.Pod) bool { return p.Name == name || p.UID == name })
		if i < 0 {
			return nil, noInstance(name)
		}
		out = append(out, known[i])
	}
	return out, nil
}

// tenantPods reads those of one namespace or of all that are managed.
func (s *session) tenantPods(ctx context.Context, namespace string) ([]pool.Pod, error) {
	namespaces := []string{namespace}
	if namespace == "" {
		managed, err := s.FunctionNamespaces(ctx)
		if err != nil {
			return nil, err
		}
		namespaces = managed
	}
	var out []pool.Pod
	for _, ns := range namespaces {
		list, err := s.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: pool.LabelTenant})
		if err != nil {
			return nil, fmt.Errorf("list pods in %s: %w", named(ns), err)
		}
		out = append(out, parse(list.Items)...)
	}
	return out, nil
}

// drain annotates one pod, if it is still the one that was read.
func (s *session) drain(ctx context.Context, p pool.Pod) (outcome string, err error) {
	if state := p.State(); state >= pool.Draining {
		return state.String() + " already", nil
	}
	patch := pool.AnnotationPatch(p, [2]string{pool.AnnotationDrainingAt, pool.FormatTime(s.world.now())})
	_, err = s.Kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "skipper-cli"})
	switch {
	case apierrors.IsNotFound(err):
		return "gone already", nil
	case err != nil:
		return "", fmt.Errorf("drain instance %s/%s: %w", p.Namespace, p.Name, err)
	}
	return "draining", nil
}

func (s *session) untilGone(ctx context.Context, p pool.Pod) error {
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		now, err := s.Kube.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && string(now.UID) != p.UID, err
	})
	if err != nil {
		return fmt.Errorf("wait for instance %s/%s to go: %w", p.Namespace, p.Name, err)
	}
	return nil
}

package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/cmd/skipper/internal/keys"
	"skipper/cmd/skipper/internal/output"
	"skipper/function/token"
)

// Where the keys are: the manifests and docs/functions.md.
const (
	privateSecret = "skipper-paseto-key"
	privateFile   = "private.pem"
	nextFile      = "next.pem"
	publicMap     = "skipper-paseto-public-key"
	publicFile    = "public.pem"
	// What the Secret remembers of a rotation, as RFC 3339 times.
	publishedAt  = "skipper/key-published-at"
	signingSince = "skipper/key-signing-since"
	// restartedAt on a pod template makes its Deployment replace all pods, as
	// kubectl rollout restart does.
	restartedAt = "kubectl.kubernetes.io/restartedAt"
)

func newKeys(w *world) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Replace the key that signs assignment tokens", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(newRotate(w))
	return cmd
}

func newRotate(w *world) *cobra.Command {
	b, apply, retireAfter := newBase(w), false, token.Lifetime
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Say, or with --apply do, the next step of a key rotation",
		Long: `Say, or with --apply do, the next step of a rotation of the key that signs
assignment tokens. No request is lost, and no pod is restarted but the controllers.

  prepare          make the next key, in the Secret skipper-paseto-key
  publish          give its public half to the pods: ConfigMap skipper-paseto-public-key
                   in each function namespace
  wait-for-pods    two minutes, until kubelets have brought it to every pod
  switch           make it the key that signs, and restart the controllers
  restart          restart them, where that was left out
  wait-for-tokens  as long as tokens of the old key are valid (--retire-after)
  retire           take the old public key from the pods

Where it stands is read from the cluster, so it may be left and taken up again. Each
call does one step; the one after retire begins another rotation. It needs the right
to update that Secret, those ConfigMaps, and the controllers' Deployment.`,
		Args: cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error { return rotate(ctx, s, apply, retireAfter) }),
	}
	b.addFlags(cmd)
	cmd.Flags().BoolVar(&apply, "apply", false, "do the step; otherwise it is only said")
	cmd.Flags().DurationVar(&retireAfter, "retire-after", retireAfter, "how long after the switch the old public key stays; below a token's 7 days only if nobody but its pod checks one")
	return cmd
}

// rotation is where it stands, with what it was read from.
type rotation struct {
	facts  keys.Facts
	secret *corev1.Secret
	maps   map[string]*corev1.ConfigMap // by namespace; nil values are to be made
}

// rotated is the result for programs.
type rotated struct {
	keys.Plan
	Done    bool   `json:"done"`
	Current string `json:"current_key"`
	Next    string `json:"next_key"`
}

func rotate(ctx context.Context, s *session, apply bool, retireAfter time.Duration) error {
	now, err := s.Clock(ctx) // the clock that pods are dated by
	if err != nil {
		return err
	}
	r, err := s.rotation(ctx)
	if err != nil {
		return err
	}
	plan := keys.Next(r.facts, now, retireAfter)
	done := apply && plan.Until == nil
	if done {
		if err := s.carryOut(ctx, r, plan.Step, now); err != nil {
			return fmt.Errorf("%s: %w", plan.Step, err)
		}
	}
	out := rotated{plan, done, keys.Fingerprint(r.facts.Current), keys.Fingerprint(r.facts.Next)}
	return s.printer.Print(out, rotatedSheet(out, now))
}

func rotatedSheet(r rotated, now time.Time) output.Sheet {
	var s output.Sheet
	s.Add("Step", output.Text(string(r.Step)))
	s.Add("Why", output.Text(r.Why))
	switch {
	case r.Until != nil:
		s.Add("Until", output.Text(fmt.Sprintf("%s (in %s)", r.Until.UTC().Format(time.RFC3339), r.Until.Sub(now).Round(time.Second))))
	case r.Done:
		s.Add("Done", output.Toned("yes: run it again for the next step", output.Good))
	default:
		s.Add("Done", output.Text("no: --apply does it"))
	}
	s.Add("Key that signs", output.Text(r.Current))
	s.Add("Next key", output.Text(r.Next))
	return s
}

// rotation reads where it stands.
func (s *session) rotation(ctx context.Context) (*rotation, error) {
	r := &rotation{maps: map[string]*corev1.ConfigMap{}, facts: keys.Facts{Published: map[string][]ed25519.PublicKey{}}}
	var err error
	if r.secret, err = s.Kube.CoreV1().Secrets(s.System).Get(ctx, privateSecret, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	if r.facts.Current, err = keys.PublicOf(r.secret.Data[privateFile]); err != nil {
		return nil, fmt.Errorf("secret %s/%s, %s: %w", s.System, privateSecret, privateFile, err)
	}
	if text := r.secret.Data[nextFile]; len(text) > 0 {
		if r.facts.Next, err = keys.PublicOf(text); err != nil {
			return nil, fmt.Errorf("secret %s/%s, %s (remove it to begin again): %w", s.System, privateSecret, nextFile, err)
		}
	}
	for annotation, into := range map[string]*time.Time{publishedAt: &r.facts.PublishedAt, signingSince: &r.facts.SigningSince} {
		if text, ok := r.secret.Annotations[annotation]; ok {
			if *into, err = time.Parse(time.RFC3339, text); err != nil {
				return nil, fmt.Errorf("secret %s/%s: annotation %s is no time: remove it", s.System, privateSecret, annotation)
			}
		}
	}
	if err := s.readPublished(ctx, r); err != nil {
		return nil, err
	}
	return r, s.readControllers(ctx, r)
}

func (s *session) readPublished(ctx context.Context, r *rotation) error {
	namespaces, err := s.FunctionNamespaces(ctx)
	if err != nil {
		return err
	}
	for _, ns := range namespaces {
		m, err := s.Kube.CoreV1().ConfigMaps(ns).Get(ctx, publicMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			r.maps[ns], r.facts.Published[ns] = nil, nil
			continue
		}
		if err != nil {
			return fmt.Errorf("read public keys of namespace %s: %w", ns, err)
		}
		have, err := token.ParsePublicKeys([]byte(m.Data[publicFile]))
		if err != nil && m.Data[publicFile] != "" {
			return fmt.Errorf("read public keys, configmap %s/%s: %w", ns, publicMap, err)
		}
		r.maps[ns], r.facts.Published[ns] = m, have
	}
	return nil
}

func (s *session) readControllers(ctx context.Context, r *rotation) error {
	pods, err := s.Kube.CoreV1().Pods(s.System).List(ctx, metav1.ListOptions{LabelSelector: s.Selector})
	if err != nil {
		return fmt.Errorf("list controllers: %w", err)
	}
	for i := range pods.Items {
		r.facts.Controllers = append(r.facts.Controllers, pods.Items[i].CreationTimestamp.Time)
	}
	return nil
}

// carryOut does one step. Each of its writes leaves a state that Next knows.
func (s *session) carryOut(ctx context.Context, r *rotation, step keys.Step, now time.Time) error {
	switch step {
	case keys.Prepare:
		next, err := keys.Generate()
		if err != nil {
			return err
		}
		r.secret.Data[nextFile] = next
		return s.writeSecret(ctx, r, publishedAt, now)
	case keys.Publish:
		if err := s.writeSecret(ctx, r, publishedAt, now); err != nil { // first: pods that hear of it late are waited for
			return err
		}
		return s.writePublished(ctx, r, step)
	case keys.Retire:
		return s.writePublished(ctx, r, step)
	case keys.Switch:
		r.secret.Data[privateFile] = r.secret.Data[nextFile]
		delete(r.secret.Data, nextFile)
		if err := s.writeSecret(ctx, r, signingSince, now); err != nil {
			return err
		}
		return s.restart(ctx, now)
	case keys.Restart:
		return s.restart(ctx, now)
	}
	return nil // the others wait
}

// writeSecret fails if somebody else has written it since it was read.
func (s *session) writeSecret(ctx context.Context, r *rotation, annotation string, at time.Time) error {
	if r.secret.Annotations == nil {
		r.secret.Annotations = map[string]string{}
	}
	r.secret.Annotations[annotation] = at.UTC().Format(time.RFC3339)
	written, err := s.Kube.CoreV1().Secrets(s.System).Update(ctx, r.secret, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write secret %s/%s: %w", s.System, privateSecret, err)
	}
	r.secret = written
	return nil
}

func (s *session) writePublished(ctx context.Context, r *rotation, step keys.Step) error {
	for _, ns := range slices.Sorted(maps.Keys(r.maps)) {
		text, err := keys.Encode(keys.Wanted(r.facts, r.facts.Published[ns], step))
		if err != nil {
			return err
		}
		if m := r.maps[ns]; m != nil {
			if m.Data == nil {
				m.Data = map[string]string{}
			}
			m.Data[publicFile] = string(text)
			_, err = s.Kube.CoreV1().ConfigMaps(ns).Update(ctx, m, metav1.UpdateOptions{})
		} else {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: publicMap}, Data: map[string]string{publicFile: string(text)}}
			_, err = s.Kube.CoreV1().ConfigMaps(ns).Create(ctx, m, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write configmap %s/%s: %w", ns, publicMap, err)
		}
	}
	return nil
}

// restart has the controllers' Deployments replace their pods, some at a time.
func (s *session) restart(ctx context.Context, now time.Time) error {
	all, err := s.Kube.AppsV1().Deployments(s.System).List(ctx, metav1.ListOptions{LabelSelector: s.Selector})
	if err != nil {
		return fmt.Errorf("find the controllers' Deployment: %w", err)
	}
	if len(all.Items) == 0 {
		return fmt.Errorf("no Deployment in namespace %s has labels %s: restart the controllers yourself", s.System, s.Selector)
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedAt, now.UTC().Format(time.RFC3339))
	var names []string
	for i := range all.Items {
		name := all.Items[i].Name
		if _, err := s.Kube.AppsV1().Deployments(s.System).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "skipper-cli"}); err != nil {
			return fmt.Errorf("restart deployment %s/%s: %w", s.System, name, err)
		}
		names = append(names, name)
	}
	s.say("restarting %s: kubectl -n %s rollout status deploy", strings.Join(names, ", "), s.System)
	return nil
}

package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skipper/deploy/local/internal/chart"
	"skipper/deploy/local/internal/progress"
)

const (
	// systemNamespace is that of Skipper itself.
	systemNamespace = "skipper-system"
	// rolloutLimit is how long one Deployment may take until its new pods are available.
	rolloutLimit = 2 * time.Minute
	// hookLimit is how long a Job may take that others wait for.
	hookLimit = 2 * time.Minute
)

// ErrNoImages says that an existing cluster was chosen without images that it can pull.
var ErrNoImages = errors.New("an existing cluster needs images that it can pull: push skipper-controller, skipper-extproc, skipper-cli, " +
	"skipper-echo and skipper-envoy to a registry and name it with --image-prefix registry/path (and --image-tag)")

// Deployment is one state of Skipper in one cluster. Overlay is a Kustomize folder with the
// namespaces and what runs in them beside Skipper; Chart is the folder of Skipper's chart and
// Values a file of values for it. Images maps image names to references. Work is a folder for
// generated files.
type Deployment struct {
	Kubectl Kubectl
	Overlay string
	Chart   string
	Values  string
	Work    string
	Images  map[string]string
	Say     *progress.Reporter
}

// Run applies everything and waits for the rollouts. Namespaces come first, then the chart's
// hooks, which make the keys, then all else.
func (d Deployment) Run(ctx context.Context) error {
	overlay, err := d.renderOverlay(ctx, d.Work)
	if err != nil {
		return err
	}
	skipper, err := d.renderChart()
	if err != nil {
		return err
	}
	if err := d.apply(ctx, overlay, func(o chart.Object) bool { return o.Kind == "Namespace" }); err != nil {
		return err
	}
	if err := d.runHooks(ctx, skipper); err != nil {
		return err
	}
	all := append(overlay, skipper...)
	if err := d.apply(ctx, all, func(o chart.Object) bool { return !o.Hook }); err != nil {
		return err
	}
	return d.waitRollouts(ctx, all)
}

// apply applies those objects that pick chooses; there may be none.
func (d Deployment) apply(ctx context.Context, objects []chart.Object, pick func(chart.Object) bool) error {
	text := chart.Join(objects, pick)
	if text == "" {
		return nil
	}
	return d.Kubectl.apply(ctx, []byte(text))
}

// runHooks does what Helm does with hooks: a Job is made anew each time, and waited for.
func (d Deployment) runHooks(ctx context.Context, objects []chart.Object) error {
	for _, o := range objects {
		if o.Hook && o.Kind == "Job" {
			if _, err := d.Kubectl.run(ctx, nil, "-n", o.Namespace, "delete", "job", o.Name, "--ignore-not-found", "--cascade=foreground"); err != nil {
				return err
			}
		}
	}
	if err := d.apply(ctx, objects, func(o chart.Object) bool { return o.Hook }); err != nil {
		return err
	}
	for _, o := range objects {
		if !o.Hook || o.Kind != "Job" {
			continue
		}
		err := d.Say.Step(ctx, fmt.Sprintf("running %s/%s", o.Namespace, o.Name), 5*time.Second, func(ctx context.Context) error {
			_, err := d.Kubectl.run(ctx, nil, "-n", o.Namespace, "wait", "--for=condition=complete", "job/"+o.Name, "--timeout="+hookLimit.String())
			return err
		})
		if err != nil {
			return fmt.Errorf("%w\nlook at it with: kubectl -n %s logs job/%s", err, o.Namespace, o.Name)
		}
	}
	return nil
}

func (d Deployment) waitRollouts(ctx context.Context, objects []chart.Object) error {
	for _, o := range objects {
		if o.Kind != "Deployment" {
			continue
		}
		what := fmt.Sprintf("rolling out %s/%s", o.Namespace, o.Name)
		err := d.Say.Step(ctx, what, 10*time.Second, func(ctx context.Context) error {
			_, err := d.Kubectl.run(ctx, nil, "-n", o.Namespace, "rollout", "status",
				"deployment/"+o.Name, "--timeout="+rolloutLimit.String())
			return err
		})
		if err != nil {
			return fmt.Errorf("%w\nlook at it with: kubectl -n %s describe pods", err, o.Namespace)
		}
	}
	return nil
}

// RemoteImages names the images of an existing cluster, or returns ErrNoImages.
func RemoteImages(prefix, tag string, names ...string) (map[string]string, error) {
	if prefix == "" {
		return nil, ErrNoImages
	}
	images := map[string]string{}
	for _, name := range names {
		images[name] = prefix + "/" + name + ":" + tag
	}
	return images, nil
}

package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skipper/deploy/local/internal/progress"
)

// rolloutLimit is how long one Deployment may take until its new pods are available.
const rolloutLimit = 2 * time.Minute

// ErrNoImages says that an existing cluster was chosen without images that it can pull.
var ErrNoImages = errors.New("an existing cluster needs images that it can pull: push skipper-controller, skipper-extproc, " +
	"skipper-echo and skipper-envoy to a registry and name it with --image-prefix registry/path (and --image-tag)")

// Deployment is one state of Skipper in one cluster. Overlay is a Kustomize folder; Images maps
// the names that it uses to references; EnvoyFiles are Envoy's configuration by file name, nil if
// the overlay has its own. Issue writes certificates for all roles into a folder, signed by the
// authority in it, which it makes if there is none. Work is a folder for generated files.
type Deployment struct {
	Kubectl    Kubectl
	Overlay    string
	Work       string
	Images     map[string]string
	EnvoyFiles map[string][]byte
	Issue      func(ctx context.Context, dir string) error
	Say        *progress.Reporter
}

// Run applies everything and waits for the rollouts. Namespaces, the signing key and the
// certificates come first: a pod that starts before them waits for the kubelet's next try.
func (d Deployment) Run(ctx context.Context) error {
	objects, err := d.render(ctx, d.Work)
	if err != nil {
		return err
	}
	namespaces := join(objects, func(o object) bool { return o.Kind == "Namespace" })
	if len(namespaces) > 0 {
		if err := d.Kubectl.apply(ctx, namespaces); err != nil {
			return err
		}
	}
	if err := d.ensureKey(ctx); err != nil {
		return err
	}
	if err := d.ensureCertificates(ctx, time.Now()); err != nil {
		return err
	}
	if err := d.Kubectl.apply(ctx, join(objects, func(object) bool { return true })); err != nil {
		return err
	}
	return d.waitRollouts(ctx, objects)
}

func (d Deployment) waitRollouts(ctx context.Context, objects []object) error {
	for _, o := range objects {
		if o.Kind != "Deployment" {
			continue
		}
		what := fmt.Sprintf("rolling out %s/%s", o.Metadata.Namespace, o.Metadata.Name)
		err := d.Say.Step(ctx, what, 10*time.Second, func(ctx context.Context) error {
			_, err := d.Kubectl.run(ctx, nil, "-n", o.Metadata.Namespace, "rollout", "status",
				"deployment/"+o.Metadata.Name, "--timeout="+rolloutLimit.String())
			return err
		})
		if err != nil {
			return fmt.Errorf("%w\nlook at it with: kubectl -n %s describe pods", err, o.Metadata.Namespace)
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

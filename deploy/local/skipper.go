package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"skipper/deploy/local/internal/build"
	"skipper/deploy/local/internal/cluster"
	"skipper/deploy/local/internal/deploy"
	"skipper/deploy/local/internal/image"
	"skipper/deploy/local/internal/sbom"
)

// imagePrefix stands before the names of Skipper's images in the manifests.
const imagePrefix = "skipper-"

// nodePort is the port of the Service skipper-envoy on the node's address.
const nodePort = 30080

// ownCommands are the commands that run in the cluster, each in an image of its own.
func ownCommands() []string { return []string{"controller", "extproc", "echo", "skipper"} }

// imageName is the name of a command's image.
func imageName(command string) string {
	if command == "skipper" {
		return imagePrefix + "cli"
	}
	return imagePrefix + command
}

func (s *settings) deploy(ctx context.Context) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	return s.deployWith(ctx, t)
}

// deployWith applies the overlay with the images of the chosen cluster and prints how to send
// a first request.
func (s *settings) deployWith(ctx context.Context, t *tools) error {
	release, err := t.store.Lock(ctx, "deploy")
	if err != nil {
		return err
	}
	defer release()
	overlay, err := s.overlayDir(t)
	if err != nil {
		return err
	}
	if !exists(overlay) {
		t.say.Line("nothing to deploy: there is no %s", overlay)
		return nil
	}
	images, err := s.chooseImages(ctx, t)
	if err != nil {
		return err
	}
	kubectl, err := s.kubectl(ctx, t)
	if err != nil {
		return err
	}
	work, err := s.workDir(t)
	if err != nil {
		return err
	}
	d := deploy.Deployment{
		Kubectl: kubectl, Overlay: overlay, Work: work, Images: images, Say: t.say,
		Chart: t.deployPath("helm", "skipper"), Values: t.deployPath("local", "values.yaml"),
	}
	if err := d.Run(ctx); err != nil {
		return err
	}
	if s.cluster == clusterLocal {
		return t.printLocalRequest(ctx)
	}
	fmt.Printf("kubectl -n skipper-system port-forward service/skipper-envoy %d:80\n", nodePort)
	fmt.Println(firstRequest(fmt.Sprintf("127.0.0.1:%d", nodePort), false))
	return nil
}

// printLocalRequest waits until the node port answers, which is a moment after the rollout,
// so that the line works at once.
func (t *tools) printLocalRequest(ctx context.Context) error {
	address := fmt.Sprintf("%s:%d", t.cluster.Node.Address.Addr(), nodePort)
	err := cluster.WaitFor(ctx, "the gateway at "+address, 30*time.Second, func(ctx context.Context) (bool, error) {
		dialer := net.Dialer{Timeout: time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
	if err != nil {
		return err
	}
	fmt.Println(firstRequest(address, os.Getenv("http_proxy") != ""))
	return nil
}

// chooseImages builds them for the local node; an existing cluster must be told.
func (s *settings) chooseImages(ctx context.Context, t *tools) (map[string]string, error) {
	if s.cluster == clusterLocal {
		return t.skipperImages(ctx)
	}
	names := []string{imagePrefix + "envoy"}
	for _, c := range ownCommands() {
		names = append(names, imageName(c))
	}
	return deploy.RemoteImages(s.imagePrefix, s.imageTag, names...)
}

// workDir holds the generated overlay: with the node's state, or in the cache's temporary
// folder where there is no node.
func (s *settings) workDir(t *tools) (string, error) {
	if s.cluster == clusterExisting {
		return t.store.Path("tmp", "overlay"), nil
	}
	if !t.cluster.HasState() {
		return "", errors.New("the node is not up: start it with up")
	}
	return filepath.Join(t.cluster.Node.State, "overlay"), nil
}

// skipperImages builds Skipper's images, gives them to the node, and returns their references
// by the names that the manifests use.
func (t *tools) skipperImages(ctx context.Context) (map[string]string, error) {
	if !t.cluster.HasState() {
		return nil, errors.New("the node is not up: start it with up")
	}
	own, err := t.builder.Own(ctx, ownCommands()...)
	if err != nil {
		return nil, err
	}
	specs, err := t.imageSpecs(ctx, own)
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	err = t.say.Step(ctx, "giving the images to the node", 5*time.Second, func(ctx context.Context) error {
		return t.importImages(ctx, specs, refs)
	})
	return refs, err
}

// importImages adds the reference of each image to refs.
func (t *tools) importImages(ctx context.Context, specs []image.Spec, refs map[string]string) error {
	for _, spec := range specs {
		img, err := image.Build(spec)
		if err != nil {
			return err
		}
		if err := t.cluster.Import(ctx, img); err != nil {
			return err
		}
		t.say.Line("image %s", img.Ref)
		refs[spec.Name] = img.Ref
	}
	return nil
}

func (t *tools) imageSpecs(ctx context.Context, own build.Binaries) ([]image.Spec, error) {
	envoy, err := t.builder.Envoy(ctx, "")
	if err != nil {
		return nil, err
	}
	files, err := image.Libraries(envoy)
	if err != nil {
		return nil, err
	}
	files["/usr/local/bin/envoy"] = envoy
	specs := []image.Spec{{Name: imagePrefix + "envoy", Files: files, Entrypoint: []string{"/usr/local/bin/envoy"}}}
	for _, c := range ownCommands() {
		path, ok := own[c]
		if !ok {
			continue
		}
		list, err := writeSBOM(path)
		if err != nil {
			return nil, err
		}
		program := "/" + c
		specs = append(specs, image.Spec{
			Name: imageName(c), Files: map[string]string{program: path, sbomFile: list}, Entrypoint: []string{program},
		})
	}
	return specs, nil
}

// sbomFile is where an image says what is in it.
const sbomFile = "/sbom.cdx.json"

// writeSBOM writes beside a program what it is made of, and returns that file.
func writeSBOM(program string) (string, error) {
	text, err := sbom.Of(program)
	if err != nil {
		return "", err
	}
	file := program + ".cdx.json"
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("write what is in an image: %w", err)
	}
	return file, nil
}

// deployPath is a path below the project's folder deploy.
func (t *tools) deployPath(elements ...string) string {
	return filepath.Join(append([]string{t.builder.Root, "deploy"}, elements...)...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// firstRequest is a line for a shell. A proxy cannot reach the node's address.
func firstRequest(address string, proxied bool) string {
	curl := "curl"
	if proxied {
		curl = "curl --noproxy '*'"
	}
	const function = `{"namespace":"functions","deployment":"echo","tenant":"me","scale":{"max_instances":1}}`
	return fmt.Sprintf("%s -H 'X-Skipper-Function: %s' http://%s/hello", curl, function, address)
}

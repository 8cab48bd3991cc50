// Package image makes container images out of a few files, without a container engine: one
// layer, a user that is not root, and a digest that depends on nothing but the content.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is "nobody in particular" by the custom of images without a shell.
const user = "65532:65532"

// tagLength is long enough that two contents of one image do not meet.
const tagLength = 16

// Prefix stands before the name of every image that is built here. No registry answers to
// it: such an image exists only where it was imported.
const Prefix = "docker.io/local/"

// Spec describes an image. Name is without registry and tag; Files maps paths in the image to
// paths on this machine, links followed; Entrypoint is the program and its first arguments.
type Spec struct {
	Name       string
	Files      map[string]string
	Entrypoint []string
}

// Image is a built image in memory, and the reference that it is known by: Prefix, name, and
// a tag made from the content.
type Image struct {
	Ref   string
	image v1.Image
}

// Build reads the files and makes the image. Equal content gives an equal reference.
func Build(s Spec) (Image, error) {
	layerTar, err := layer(s.Files)
	if err != nil {
		return Image{}, fmt.Errorf("pack image %s: %w", s.Name, err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layerTar)), nil
	}, tarball.WithMediaType(types.DockerLayer), tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return Image{}, fmt.Errorf("make layer of image %s: %w", s.Name, err)
	}
	img, err := assemble(s, l)
	if err != nil {
		return Image{}, fmt.Errorf("make image %s: %w", s.Name, err)
	}
	id, err := img.ConfigName()
	if err != nil {
		return Image{}, fmt.Errorf("name image %s: %w", s.Name, err)
	}
	return Image{Ref: Prefix + s.Name + ":" + id.Hex[:tagLength], image: img}, nil
}

func assemble(s Spec, l v1.Layer) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config = v1.Config{User: user, Entrypoint: s.Entrypoint, WorkingDir: "/", Env: []string{"PATH=/"}}
	return mutate.ConfigFile(img, file)
}

// Write stores the image as a docker-archive at path.
func (i Image) Write(path string) error {
	ref, err := name.NewTag(i.Ref)
	if err != nil {
		return fmt.Errorf("read image name %s: %w", i.Ref, err)
	}
	temp := path + ".new"
	if err := tarball.WriteToFile(temp, ref, i.image); err != nil {
		return fmt.Errorf("write image %s: %w", i.Ref, err)
	}
	return os.Rename(temp, path)
}

// layer is a tar of the files and their folders in a fixed order without times, so that it is
// the same on every machine.
func layer(files map[string]string) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, dir := range folders(files) {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Mode: mode, Typeflag: tar.TypeDir}); err != nil {
			return nil, err
		}
	}
	for _, dest := range sortedKeys(files) {
		if err := addFile(w, strings.TrimPrefix(dest, "/"), files[dest]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

func addFile(w *tar.Writer, dest, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: dest, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// folders lists every parent of the files, and the mount points that a runtime expects,
// parents first.
func folders(files map[string]string) []string {
	dirs := map[string]bool{"tmp": true, "etc": true, "dev": true, "proc": true, "sys": true}
	for dest := range files {
		for d := path.Dir(strings.TrimPrefix(dest, "/")); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	return sortedKeys(dirs)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

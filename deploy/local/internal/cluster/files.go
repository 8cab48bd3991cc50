package cluster

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"skipper/deploy/local/internal/pki"
)

//go:embed config manifests
var templates embed.FS

// values is what the templates may use. Images has one reference per name, with "_" for "-".
type values struct {
	State, Programs, Socket, Bridge, Address, Pods, DNS string
	MaxPods                                             int
	Images                                              map[string]string
}

func (n Node) values(images map[string]string) values {
	v := values{
		State: n.State, Programs: n.Programs, Socket: n.socket(), Bridge: n.Bridge,
		Address: n.Address.Addr().String(), Pods: n.Address.Masked().String(),
		DNS: n.DNS.String(), MaxPods: n.MaxPods, Images: map[string]string{},
	}
	for name, ref := range images {
		v.Images[strings.ReplaceAll(name, "-", "_")] = ref
	}
	return v
}

// render fills one embedded file. A name that the template uses and that is not there is an
// error.
func (n Node) render(file string, images map[string]string) ([]byte, error) {
	t, err := template.New(filepath.Base(file)).Option("missingkey=error").ParseFS(templates, file)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, n.values(images)); err != nil {
		return nil, fmt.Errorf("render %s: %w", file, err)
	}
	return out.Bytes(), nil
}

// writeConfig writes the components' configuration files into the state folder.
func (n Node) writeConfig(images map[string]string) error {
	for file, dest := range map[string]string{
		"config/containerd.toml":    "containerd.toml",
		"config/kubelet.yaml":       "kubelet.yaml",
		"config/10-bridge.conflist": "cni/10-bridge.conflist",
	} {
		content, err := n.render(file, images)
		if err != nil {
			return err
		}
		path := filepath.Join(n.State, dest)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make configuration folder: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}

// manifests is every manifest of the node's own pods, in the order of their file names.
func (n Node) manifests(images map[string]string) ([]byte, error) {
	entries, err := templates.ReadDir("manifests")
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var all [][]byte
	for _, e := range entries {
		content, err := n.render("manifests/"+e.Name(), images)
		if err != nil {
			return nil, err
		}
		all = append(all, content)
	}
	return bytes.Join(all, []byte("---\n")), nil
}

// identity changes with the way a component is called and with its configuration.
func (n Node) identity(c component) (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q\n", c.argv)
	if target, err := filepath.EvalSymlinks(c.argv[0]); err == nil {
		_, _ = fmt.Fprintln(h, target) // the link's target changes with the program's version
	}
	for _, file := range c.files {
		content, err := os.ReadFile(filepath.Join(n.State, file))
		if err != nil {
			return "", fmt.Errorf("read configuration of %s: %w", c.name, err)
		}
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// serverHosts are the names and addresses by which the API server is called.
func (n Node) serverHosts() []string {
	return []string{
		n.Address.Addr().String(), n.Services.Addr().Next().String(), "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
}

// writePKI makes all certificates and kubeconfigs once; the marker file comes last.
func (n Node) writePKI(now time.Time) error {
	done := n.pki("done")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(done), 0o700); err != nil {
		return fmt.Errorf("make folder of certificates: %w", err)
	}
	ca, err := pki.NewAuthority("kubernetes-ca", now)
	if err != nil {
		return err
	}
	front, err := pki.NewAuthority("front-proxy-ca", now)
	if err != nil {
		return err
	}
	signer, err := pki.NewSigner()
	if err != nil {
		return err
	}
	pairs := map[string]pki.Pair{"ca": ca.Pair, "front-proxy-ca": front.Pair, "sa": signer}
	if err := n.issue(ca, front, now, pairs); err != nil {
		return err
	}
	for name, pair := range pairs {
		if err := pair.Write(filepath.Dir(done), name); err != nil {
			return err
		}
	}
	if err := n.writeKubeconfigs(pairs); err != nil {
		return err
	}
	return os.WriteFile(done, nil, 0o644)
}

// issue adds every component's certificate to pairs.
func (n Node) issue(ca, front *pki.Authority, now time.Time, pairs map[string]pki.Pair) error {
	node := pki.Request{Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}}
	nodeServer := node
	nodeServer.Hosts = []string{n.Address.Addr().String(), n.Name}
	for name, r := range map[string]pki.Request{
		"apiserver":                {Name: "kube-apiserver", Hosts: n.serverHosts()},
		"apiserver-kubelet-client": {Name: "kube-apiserver-kubelet-client"},
		"kubelet-server":           nodeServer,
		"kubelet":                  node,
		"admin":                    {Name: "admin", Groups: []string{"system:masters"}},
		"kcm":                      {Name: "system:kube-controller-manager"},
		"scheduler":                {Name: "system:kube-scheduler"},
		"kube-proxy":               {Name: "system:kube-proxy"},
	} {
		pair, err := ca.Issue(r, now)
		if err != nil {
			return err
		}
		pairs[name] = pair
	}
	pair, err := front.Issue(pki.Request{Name: "front-proxy-client"}, now)
	pairs["front-proxy-client"] = pair
	return err
}

func (n Node) writeKubeconfigs(pairs map[string]pki.Pair) error {
	for user, path := range map[string]string{
		"admin": n.Kubeconfig(), "kcm": n.pki("kcm.kubeconfig"), "scheduler": n.pki("scheduler.kubeconfig"),
		"kubelet": n.pki("kubelet.kubeconfig"), "kube-proxy": n.pki("kube-proxy.kubeconfig"),
	} {
		content := kubeconfig(n.API(), pairs["ca"].Cert, pairs[user])
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

// kubeconfig holds the certificates themselves, so that the file can be copied elsewhere.
func kubeconfig(api string, ca []byte, user pki.Pair) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: skipper-local, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: skipper-local, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: skipper-local, context: {cluster: skipper-local, user: skipper-local}}]
current-context: skipper-local
`, api, encode(ca), encode(user.Cert), encode(user.Key))
}

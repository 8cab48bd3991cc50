package deploy

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// renewBefore is how long before its end a certificate is issued anew by the next deploy.
const renewBefore = 60 * 24 * time.Hour

const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	authorityFile   = "ca.crt"
	// authorityName is the Secret with the authority's certificate and key. No pod mounts it.
	authorityName = "skipper-tls-authority"
)

// roles each have a Secret of type kubernetes.io/tls, with the authority beside the certificate.
func roles() []string { return []string{"controller", "envoy", "extproc", "operator"} }

func roleSecret(role string) string { return "skipper-tls-" + role }

// ensureCertificates has a certificate issued for each role if one of them is missing or ends
// soon. The authority stays, so that parts with old and new certificates go on trusting each
// other; pods take over changed Secrets by themselves.
func (d Deployment) ensureCertificates(ctx context.Context, now time.Time) error {
	found := map[string]map[string][]byte{}
	for _, role := range roles() {
		data, err := d.secretData(ctx, roleSecret(role))
		if err != nil {
			return err
		}
		found[role] = data
	}
	ill := due(found, now)
	if len(ill) == 0 {
		return nil
	}
	for _, reason := range ill {
		d.Say.Line("certificates: %s", reason)
	}
	dir, err := os.MkdirTemp("", "skipper-tls-")
	if err != nil {
		return fmt.Errorf("make folder for certificates: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is swept with the cache
	return d.issueInto(ctx, dir)
}

// due says of each role why its certificate must be issued anew; none means that all are good.
func due(found map[string]map[string][]byte, now time.Time) []string {
	var out []string
	for _, role := range roles() {
		data := found[role]
		block, _ := pem.Decode(data[certificateFile])
		if block == nil || len(data[keyFile]) == 0 || len(data[authorityFile]) == 0 {
			out = append(out, role+" has none")
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			out = append(out, fmt.Sprintf("that of %s cannot be read: %v", role, err))
		case now.Add(renewBefore).After(c.NotAfter):
			out = append(out, fmt.Sprintf("that of %s ends %s", role, c.NotAfter.Format(time.DateOnly)))
		}
	}
	return out
}

// issueInto uses the cluster's authority if there is one, and stores all that was issued.
func (d Deployment) issueInto(ctx context.Context, dir string) error {
	authority, err := d.secretData(ctx, authorityName)
	if err != nil {
		return err
	}
	if authority != nil {
		if err := writeFolder(dir, map[string][]byte{authorityFile: authority[certificateFile], "ca.key": authority[keyFile]}); err != nil {
			return err
		}
	}
	if err := d.Issue(ctx, dir); err != nil {
		return err
	}
	made, err := ReadFolder(dir)
	if err != nil {
		return err
	}
	// The authority comes first: without it, certificates of the next one would be strangers.
	if err := d.storeTLS(ctx, authorityName, map[string][]byte{certificateFile: made[authorityFile], keyFile: made["ca.key"]}); err != nil {
		return err
	}
	for _, role := range roles() {
		data, err := ReadFolder(filepath.Join(dir, role))
		if err != nil {
			return err
		}
		if err := d.storeTLS(ctx, roleSecret(role), data); err != nil {
			return err
		}
	}
	return nil
}

func (d Deployment) storeTLS(ctx context.Context, name string, data map[string][]byte) error {
	text := map[string]any{}
	for k, v := range data {
		text[k] = string(v)
	}
	return d.applyObject(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"metadata":   map[string]any{"name": name, "namespace": systemNamespace},
		"stringData": text,
	})
}

// secretData is nil if there is no such Secret.
func (d Deployment) secretData(ctx context.Context, name string) (map[string][]byte, error) {
	out, err := d.Kubectl.run(ctx, nil, "-n", systemNamespace, "get", "secret", name, "--ignore-not-found", "-o", "json")
	if err != nil || len(out) == 0 {
		return nil, err
	}
	var s struct{ Data map[string][]byte }
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	return s.Data, nil
}

// ReadFolder returns the files of a folder by name, folders left out.
func ReadFolder(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read folder: %w", err)
	}
	entries = slices.DeleteFunc(entries, os.DirEntry.IsDir)
	out := map[string][]byte{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read file: %w", err)
		}
		out[e.Name()] = text
	}
	return out, nil
}

func writeFolder(dir string, files map[string][]byte) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("write file: %w", err)
		}
	}
	return nil
}

package deploy

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

const (
	systemNamespace   = "skipper-system"
	functionNamespace = "functions"

	privateKeyName = "skipper-paseto-key"
	privateKeyFile = "private.pem"
	publicKeyName  = "skipper-paseto-public-key"
	publicKeyFile  = "public.pem"
)

// ensureKey makes the key that signs assignment tokens if the cluster has none, and publishes
// its public half where functions run. A key that is there is never replaced: pods that hold
// tokens would refuse the new one.
func (d Deployment) ensureKey(ctx context.Context) error {
	private, err := d.privateKey(ctx)
	if err != nil {
		return err
	}
	public, err := publicHalf(private)
	if err != nil {
		return err
	}
	return d.applyObject(ctx, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": publicKeyName, "namespace": functionNamespace},
		"data":     map[string]any{publicKeyFile: string(public)},
	})
}

func (d Deployment) privateKey(ctx context.Context) ([]byte, error) {
	found, err := d.Kubectl.exists(ctx, systemNamespace, "secret/"+privateKeyName)
	if err != nil {
		return nil, err
	}
	if found {
		return d.readPrivateKey(ctx)
	}
	private, err := newPrivateKey()
	if err != nil {
		return nil, err
	}
	return private, d.applyObject(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata":   map[string]any{"name": privateKeyName, "namespace": systemNamespace},
		"stringData": map[string]any{privateKeyFile: string(private)},
	})
}

func (d Deployment) readPrivateKey(ctx context.Context) ([]byte, error) {
	out, err := d.Kubectl.run(ctx, nil, "-n", systemNamespace, "get", "secret", privateKeyName,
		"-o", `jsonpath={.data.private\.pem}`)
	if err != nil {
		return nil, err
	}
	private, err := base64.StdEncoding.DecodeString(string(out))
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	return private, nil
}

func (d Deployment) applyObject(ctx context.Context, o map[string]any) error {
	text, err := yaml.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode %v: %w", o["kind"], err)
	}
	return d.Kubectl.apply(ctx, text)
}

// newPrivateKey is an Ed25519 key as PKCS #8 in PEM.
func newPrivateKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// publicHalf is the public key of a private one, as PKIX in PEM.
func publicHalf(private []byte) ([]byte, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, errors.New("signing key in the cluster is no PEM: delete secret " + privateKeyName)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("signing key in the cluster is not Ed25519: delete secret " + privateKeyName)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

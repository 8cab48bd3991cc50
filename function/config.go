package function

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"skipper/function/token"
)

// The wire names between Skipper and a pod.
const (
	// HeaderToken carries the assignment's token.
	HeaderToken = "X-Skipper-Token"
	// HeaderFunction carries the assignment's function as JSON.
	HeaderFunction = "X-Skipper-Function"
	// HeaderInstance names, in every request, the UID of the pod it is meant for.
	HeaderInstance = "X-Skipper-Instance"
	// HeaderRequest is the request's id, the same when the request is tried a second time.
	HeaderRequest = "X-Skipper-Request"
	// HeaderMisdirected marks a 421 that asks the proxy to find the right pod; its value is "1".
	HeaderMisdirected = "X-Skipper-Misdirected"
)

// The paths this package answers unless the Config names others.
const (
	DefaultAssignPath = "/__skipper/assign"
	DefaultHealthPath = "/healthz"
)

// Config says who this pod is and whom it believes. Start from NewConfig or FromEnv.
type Config struct {
	// PodName is this pod's name. Required. Tokens for another name are refused.
	PodName string
	// PodUID is this pod's UID. Empty: it is taken from the token of the assignment, which is then bound to this
	// pod by the name alone.
	PodUID string
	// PublicKeys verify tokens; any one suffices. With neither keys nor files every assignment is refused.
	PublicKeys []ed25519.PublicKey
	// PublicKeyFiles are PEM files, each of one or more keys. They are read again at every assignment, so a rotated
	// mount takes effect in pods that wait in the pool.
	PublicKeyFiles []string
	// AcceptAnyToken takes an assignment without looking at its token. For a developer's machine only: whoever
	// reaches the port becomes the tenant.
	AcceptAnyToken bool
	// AllowDirect serves requests without the header x-skipper-instance, which no proxy of Skipper sends. It suits
	// debugging; where others can reach the port it gives up the isolation of tenants.
	AllowDirect bool
	// AssignPath is where the assignment is posted, HealthPath where probes are answered.
	AssignPath, HealthPath string
	// OnAssign, if set, runs before the assignment is accepted, once at a time. Its error is answered with 500, the
	// pod stays without a tenant, and Skipper deletes it. The context ends when the caller gives up.
	OnAssign func(ctx context.Context, a Assignment) error
	// Health, if set, decides about probes: an error is 503. It must be quick.
	Health func(ctx context.Context) error
	// Now is the clock for the token's times; nil is time.Now.
	Now func() time.Time
	// Logger tells of assignments; nil is silent. Tokens are never logged.
	Logger *zap.Logger
	// Server is how Serve listens and stops.
	Server Server
}

// NewConfig returns a Config with the contract's paths and DefaultServer.
func NewConfig() Config {
	return Config{AssignPath: DefaultAssignPath, HealthPath: DefaultHealthPath, Server: DefaultServer()}
}

// FromEnv returns NewConfig with what the pod's environment says: POD_NAME (else the host name, which in a pod is
// the pod's name), POD_UID, and SKIPPER_PUBLIC_KEY_FILE (paths, separated by commas).
func FromEnv() (Config, error) {
	cfg := NewConfig()
	cfg.PodUID = os.Getenv("POD_UID")
	for path := range strings.SplitSeq(os.Getenv("SKIPPER_PUBLIC_KEY_FILE"), ",") {
		if path = strings.TrimSpace(path); path != "" {
			cfg.PublicKeyFiles = append(cfg.PublicKeyFiles, path)
		}
	}
	if cfg.PodName = os.Getenv("POD_NAME"); cfg.PodName != "" {
		return cfg, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return Config{}, fmt.Errorf("read host name, since POD_NAME is not set: %w", err)
	}
	cfg.PodName = host
	return cfg, nil
}

// validate reports all that is wrong at once. Key files are read, so that a wrong path shows at the start.
func (c Config) validate() error {
	var errs []error
	if c.PodName == "" {
		errs = append(errs, errors.New("pod name is empty: set POD_NAME from the downward API (metadata.name)"))
	}
	for _, path := range []string{c.AssignPath, c.HealthPath} {
		if !strings.HasPrefix(path, "/") {
			errs = append(errs, fmt.Errorf("path %q does not begin with a slash", path))
		}
	}
	if c.AssignPath == c.HealthPath {
		errs = append(errs, fmt.Errorf("assign path and health path are both %q", c.AssignPath))
	}
	if _, err := c.keys(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keys returns the configured keys and those that the files hold at this moment.
func (c Config) keys() ([]ed25519.PublicKey, error) {
	keys := append([]ed25519.PublicKey(nil), c.PublicKeys...)
	for _, path := range c.PublicKeyFiles {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read public key file: %w", err)
		}
		more, err := token.ParsePublicKeys(data)
		if err != nil {
			return nil, fmt.Errorf("parse public key file %s: %w", path, err)
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

func (c Config) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

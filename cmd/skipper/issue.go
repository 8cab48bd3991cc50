package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

func newTLS() *cobra.Command {
	cmd := &cobra.Command{Use: "tls", Short: "Make the certificates by which the parts know each other", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(newIssue())
	return cmd
}

// issueOptions are the flags of "tls issue".
type issueOptions struct {
	dir, service, namespace string
	lifetime                time.Duration
}

func newIssue() *cobra.Command {
	o := &issueOptions{service: "skipper-controller", namespace: "skipper-system", lifetime: issue.CertificateLifetime}
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a certificate for each role",
		Long: `Issue a certificate for each role: controller, envoy, extproc, operator.

Each goes to DIR/<role> as tls.crt, tls.key and ca.crt, as in a Secret of type
kubernetes.io/tls. The authority is DIR/ca.crt and DIR/ca.key; it is made where it
is missing, and otherwise used, so that renewed certificates are trusted by those
who know it. Keep ca.key away from the pods. Running parts take over renewed files
by themselves. To replace the authority, first give all parts a ca.crt with the old
and the new one, then the new certificates, and last the new ca.crt alone.`,
		Example: "  skipper tls issue --dir ./tls\n" +
			"  kubectl -n skipper-system create secret generic skipper-tls-envoy --from-file ./tls/envoy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd.Flags(), os.Getenv); err != nil {
				return err
			}
			return o.run(time.Now())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *issueOptions) addFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.dir, "dir", "", "folder to write to, made where it is missing (required)")
	f.StringVar(&o.service, "service", o.service, "Service of the controllers, whose names stand in their certificate")
	f.StringVar(&o.namespace, "service-namespace", o.namespace, "namespace of that Service")
	f.DurationVar(&o.lifetime, "lifetime", o.lifetime, "how long the certificates are valid; the authority is for ten years")
}

func (o *issueOptions) run(now time.Time) error {
	if o.dir == "" {
		return errors.New("--dir is empty: name a folder for the certificates")
	}
	if o.lifetime <= 0 {
		return fmt.Errorf("--lifetime is %s: use a time above 0", o.lifetime)
	}
	authority, err := o.authority(now)
	if err != nil {
		return err
	}
	for _, role := range identity.Roles() {
		r := issue.Request{Role: role, Lifetime: o.lifetime}
		if role == identity.Controller { // the only one that serves
			r.Names = issue.ServiceNames(o.service, o.namespace)
		}
		pair, err := authority.Issue(r, now)
		if err != nil {
			return err
		}
		if err := writePair(filepath.Join(o.dir, string(role)), "tls", pair, authority.Cert); err != nil {
			return err
		}
	}
	return nil
}

// authority reads the one in the folder, or makes it.
func (o *issueOptions) authority(now time.Time) (*issue.Authority, error) {
	cert, err := os.ReadFile(filepath.Join(o.dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return o.newAuthority(now)
	}
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(o.dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	return issue.ParseAuthority(issue.Pair{Cert: cert, Key: key})
}

func (o *issueOptions) newAuthority(now time.Time) (*issue.Authority, error) {
	a, err := issue.NewAuthority(now)
	if err != nil {
		return nil, err
	}
	return a, writePair(o.dir, "ca", a.Pair, nil)
}

// writePair writes NAME.key before NAME.crt: a certificate without its key
// would pass for an authority whose key is lost.
func writePair(dir, name string, p issue.Pair, authority []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for certificates: %w", err)
	}
	err := os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644)
	}
	if err == nil && authority != nil {
		err = os.WriteFile(filepath.Join(dir, "ca.crt"), authority, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}

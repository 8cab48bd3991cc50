package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skipper/cmd/skipper/internal/keys"
	"skipper/cmd/skipper/internal/view"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/signed"
)

// signing are the flags that make a token of a function.
type signing struct {
	file, audience string
	lifetime       time.Duration
}

func (o *signing) addFlags(f *pflag.FlagSet, name, empty string) {
	f.StringVar(&o.file, name, "", "PEM `file` with the Ed25519 private key (PKCS#8) that signs the function"+empty)
	f.StringVar(&o.audience, "audience", signed.DefaultAudience, "gateways that the token is meant for: --function-audience of their extproc")
	f.DurationVar(&o.lifetime, "token-lifetime", 5*time.Minute, "for how long the token holds from now on; it begins a minute earlier, for clocks that are behind")
}

// sign returns the token for the function.
func (o *signing) sign(f *skipperpb.Function, now time.Time) (string, error) {
	if o.lifetime <= 0 {
		return "", fmt.Errorf("--token-lifetime %s is over at once: give more than 0s", o.lifetime)
	}
	text, err := os.ReadFile(o.file)
	if err != nil {
		return "", fmt.Errorf("read signing key: %w", err)
	}
	key, err := keys.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%w (%s); `openssl genpkey -algorithm ed25519` makes one", err, o.file)
	}
	return signed.Sign(key, signed.Claims{
		Function: string(fn.Marshal(f)), Audience: o.audience, NotBefore: now.Add(-signed.Backdate), Expires: now.Add(o.lifetime),
	})
}

// signOptions are the flags of "token sign".
type signOptions struct {
	configuration
	signing
}

func newSign(w *world) *cobra.Command {
	o := &signOptions{}
	cmd := &cobra.Command{
		Use:   "sign FUNCTION",
		Short: "Sign a function, for gateways that take no other X-Skipper-Function header",
		Long: `Sign a function, for gateways that take no other X-Skipper-Function header (flag
--require-signed-function of extproc). The token is what is printed; until it
expires, whoever has it may send requests to the function.

FUNCTION is NAMESPACE/DEPLOYMENT/TENANT, with /oneshot behind it for a oneshot, or
the JSON of the header. No cluster is asked: metadata and scale that are not given
are empty, with one instance at most.`,
		Example: `  openssl genpkey -algorithm ed25519 -out signer.pem && openssl pkey -in signer.pem -pubout -out signer.pub
  curl -H "X-Skipper-Function: $(skipper token sign functions/echo/me --key-file signer.pem)" http://GATEWAY/hello`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, w.now(), args[0]) },
	}
	o.configuration.addFlags(cmd.Flags(), "")
	o.signing.addFlags(cmd.Flags(), "key-file", "")
	return cmd
}

func (o *signOptions) run(cmd *cobra.Command, now time.Time, function string) error {
	if o.file == "" {
		return errors.New("no key is given: name the private key's file by --key-file")
	}
	named, err := view.ParseFunction(function)
	if err != nil {
		return err
	}
	f, err := o.complete(named, nil, cmd.Flags().Changed)
	if err != nil {
		return err
	}
	token, err := o.sign(f, now)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
	return err
}

// headerOf is what invoke sends as X-Skipper-Function: signed if there is a key.
func (o *signing) headerOf(f *skipperpb.Function, now time.Time) (string, error) {
	if o.file == "" {
		return string(fn.Marshal(f)), nil
	}
	return o.sign(f, now)
}

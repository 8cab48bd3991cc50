package main

import (
	"errors"

	"github.com/spf13/pflag"

	"skipper/extproc/trust"
)

// functionTrust is whose word on functions is taken, and for which of them.
type functionTrust struct {
	publicKeys                        []string
	audience                          string
	requireSigned                     []string
	allowNamespaces, allowDeployments []string
}

func (c *config) addFunctionFlags(fs *pflag.FlagSet) {
	f := &c.functions
	fs.StringSliceVar(&f.publicKeys, "function-public-keys", nil, "PEM `files` of the Ed25519 public keys whose tokens are taken in X-Skipper-Function; read again when they change")
	fs.StringVar(&f.audience, "function-audience", f.audience, "`name` that tokens must be meant for (aud)")
	fs.StringSliceVar(&f.requireSigned, "require-signed-function", nil, "`listeners` on which X-Skipper-Function must be a token; * is all")
	fs.StringSliceVar(&f.allowNamespaces, "allow-namespaces", nil, "`namespaces` whose functions are let through, as namespace or listener=namespace; nothing here and in --allow-deployments: all")
	fs.StringSliceVar(&f.allowDeployments, "allow-deployments", nil, "`deployments` that are let through as well, as namespace/deployment or namespace/*, or listener=namespace/deployment; a listener's own entries replace the general ones")
}

func (f *functionTrust) validate() error {
	rules, err := f.rules()
	if f.audience == "" {
		err = errors.Join(err, errors.New("--function-audience is empty: set the name that tokens are made for"))
	}
	if rules.Signed() && len(f.publicKeys) == 0 {
		err = errors.Join(err, errors.New("--require-signed-function is set without --function-public-keys: name the files of the keys"))
	}
	return err
}

func (f *functionTrust) rules() (trust.Rules, error) {
	return trust.ParseRules(f.allowNamespaces, f.allowDeployments, f.requireSigned)
}

// openGate reads the keys; without any, tokens are refused.
func (p *process) openGate() (*trust.Gate, error) {
	f := &p.cfg.functions
	rules, err := f.rules()
	if err != nil {
		return nil, err
	}
	if len(f.publicKeys) > 0 {
		p.keys, err = trust.OpenKeys(trust.KeysOptions{
			Files: f.publicKeys, Audience: f.audience, Tokens: p.cfg.headerCacheSize,
			Logger: p.log.Named("trust"), Registerer: p.registry,
		})
	}
	return trust.New(p.cfg.headerCacheSize, p.keys, rules), err
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"skipper/controller/provision"
)

func newProvision(w *world) *cobra.Command {
	b, l := newBase(w), &provision.Layout{}
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Make keys and certificates in the cluster where they are missing",
		Long: `Make the signing key, an authority and a certificate for each role where they are
missing, as Secrets in the namespace of the controllers. Certificates that end within
60 days are issued anew by the same authority, and running parts take them over by
themselves. The key is never replaced. Its public half goes to the namespaces of
functions, and the certificates of gateways to those of pods with a gateway of their
own; these namespaces must exist. It can be repeated, and is what the chart's Job
runs.`,
		Example: "  skipper provision --function-namespaces functions",
		Args:    cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error {
			if len(l.Functions) == 0 {
				return errors.New("--function-namespaces is empty: name those of the controllers")
			}
			l.System = s.System
			return provision.Run(ctx, s.Kube, *l, w.now(), func(c provision.Change) {
				_, _ = fmt.Fprintf(s.note, "wrote %s: %s\n", c.Ref, c.Reason) // a remark
			})
		}),
	}
	b.addFlags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&l.Functions, "function-namespaces", nil, "`namespaces` of functions (required)")
	f.StringSliceVar(&l.Gateways, "gateway-namespaces", nil, "`namespaces` of pods with a gateway of their own")
	return cmd
}

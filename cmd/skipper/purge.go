package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"skipper/cmd/skipper/internal/output"
	"skipper/controller/provision"
	"skipper/controller/purge"
)

// purgeOptions are the flags of "purge".
type purgeOptions struct {
	layout        provision.Layout
	keepKeys, yes bool
}

func newPurge(w *world) *cobra.Command {
	b, o := newBase(w), &purgeOptions{}
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove what stays when Skipper is uninstalled",
		Long: `Remove what stays when Skipper is uninstalled: pods that are assigned to tenants,
which no Deployment owns any more; the Leases of extprocs; the signing key and the
certificates. It prints what it would delete; only with --yes it does so. Uninstall
first: while controllers run it does nothing. Deployments of functions stay.`,
		Example: "  skipper purge --function-namespaces functions\n  skipper purge --function-namespaces functions --yes",
		Args:    cobra.NoArgs,
		RunE:    b.run(o.run),
	}
	b.addFlags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.layout.Functions, "function-namespaces", nil, "`namespaces` of functions (required)")
	f.StringSliceVar(&o.layout.Gateways, "gateway-namespaces", nil, "`namespaces` of pods with a gateway of their own")
	f.BoolVar(&o.keepKeys, "keep-keys", false, "keep the signing key and the certificates, for another installation")
	f.BoolVar(&o.yes, "yes", false, "delete")
	return cmd
}

func (o *purgeOptions) run(ctx context.Context, s *session) error {
	if len(o.layout.Functions) == 0 {
		return errors.New("--function-namespaces is empty: name those that the controllers had")
	}
	o.layout.System = s.System
	found, err := purge.Find(ctx, s.Kube, o.layout)
	if err != nil {
		return err
	}
	items, err := purge.Plan(found, o.keepKeys)
	if err != nil {
		return err
	}
	if err := s.printer.Print(purgeLines(items), purgeGrid(items)); err != nil {
		return err
	}
	if !o.yes {
		_, err := fmt.Fprintln(s.note, "nothing was deleted: say --yes to do so")
		return err
	}
	return purge.Carry(ctx, s.Kube, items)
}

// purgeLine is an item for programs.
type purgeLine struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Delete    bool   `json:"delete"`
	Reason    string `json:"reason"`
}

func purgeLines(items []purge.Item) []purgeLine {
	out := []purgeLine{}
	for _, i := range items {
		out = append(out, purgeLine{i.Kind, i.Namespace, i.Name, i.Delete, i.Reason})
	}
	return out
}

func purgeGrid(items []purge.Item) output.Grid {
	g := output.Grid{Columns: []string{"DO", "KIND", "NAMESPACE", "NAME", "WHY"}, Empty: "nothing of Skipper is left"}
	for _, i := range items {
		do := output.Text("keep")
		if i.Delete {
			do = output.Toned("delete", output.Warn)
		}
		g.Add(do, output.Text(i.Kind), output.Text(i.Namespace), output.Text(i.Name), output.Text(i.Reason))
	}
	return g
}

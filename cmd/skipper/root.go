package main

import (
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Groups of commands, as help shows them.
const (
	groupLook  = "look"
	groupAct   = "act"
	groupSetUp = "setup"
)

// newRoot builds the whole command, so that tests can run it.
func newRoot(w *world) *cobra.Command {
	root := &cobra.Command{
		Use:   "skipper",
		Short: "Look after Skipper: see what it does, act on it, set it up",
		Long: `Look after Skipper: see what it does, act on it, set it up.

Commands on a cluster use the kubeconfig, as kubectl does. Each flag may be set by
an environment variable, SKIPPER_SYSTEM_NAMESPACE for --system-namespace; a flag
beats the variable. NO_COLOR turns colours off. Installed as kubectl-skipper, it
is also kubectl skipper.`,
		Args:          cobra.NoArgs,
		RunE:          help,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "See:"}, &cobra.Group{ID: groupAct, Title: "Act:"}, &cobra.Group{ID: groupSetUp, Title: "Set up:"})
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
	add(root, groupLook, newFunctions(w), newInstances(w), newDescribe(w), newEvents(w), newPools(w), newDoctor(w))
	add(root, groupAct, newInvoke(w), newScale(w), newDrain(w), newRelease(w))
	add(root, groupSetUp, newEnvoy(), newTLS(), newToken(w), newKeys(w), newProvision(w), newPurge(w), newVersion())
	return root
}

func add(root *cobra.Command, group string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = group
	}
	root.AddCommand(cmds...)
}

// callAs makes help speak of the program as it was called: a plugin of kubectl
// has a dash in its file's name where people write a space.
func callAs(root *cobra.Command, arg0 string) {
	name := strings.TrimSuffix(filepath.Base(arg0), ".exe")
	if plugin, ok := strings.CutPrefix(name, "kubectl-"); ok {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + strings.ReplaceAll(plugin, "_", "-")}
	}
}

// help is what a command of commands does when none is named. Being runnable,
// it also refuses names that it does not know.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func newEnvoy() *cobra.Command {
	cmd := &cobra.Command{Use: "envoy", Short: "Configure the gateway's Envoy", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(newBootstrap())
	return cmd
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version that this program was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), describe(info))
			return err
		},
	}
}

// describe tells version, commit and compiler, as far as the build recorded
// them; info may be nil.
func describe(info *debug.BuildInfo) string {
	if info == nil {
		return "skipper unknown"
	}
	version, commit := info.Main.Version, ""
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = " " + s.Value + commit
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += " modified"
		}
	}
	return "skipper " + version + commit + " " + info.GoVersion
}

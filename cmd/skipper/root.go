package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// newRoot builds the whole command, so that tests can run it.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "skipper",
		Short:         "Set up Skipper",
		Args:          cobra.NoArgs,
		RunE:          help,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newEnvoy(), newTLS(), newVersion())
	return root
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

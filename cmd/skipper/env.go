package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// envPrefix begins the name of every variable that stands for a flag.
const envPrefix = "SKIPPER_"

// fromEnv sets the flags that were not given from SKIPPER_ + their name in
// upper snake case, as all programs of Skipper do, and reports all variables
// that do not fit. An empty variable counts as not set, and so does one that
// Kubernetes made for a Service whose name happens to fit, such as
// SKIPPER_CONTROLLER_PORT=tcp://10.0.0.1:50051.
func fromEnv(flags *pflag.FlagSet, getenv func(string) string) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := getenv(name)
		if f.Changed || value == "" || strings.HasPrefix(value, "tcp://") || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagBeatsEnvironmentBeatsDefault(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"SKIPPER_HOLD_TIMEOUT": "1m", "SKIPPER_HTTP_PORT": "1", "SKIPPER_READY_PORT": "", "SKIPPER_UPGRADES": "a,b", "SKIPPER_HELP": "true",
		"SKIPPER_CONTROLLER_PORT": "tcp://10.0.0.1:50051",
	}
	o, flags := newBootstrapOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse([]string{"--http-port=2"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnv(flags, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	c := o.resolve()
	if c.HTTPPort != 2 || c.ReadyPort != 9902 || c.HoldTimeout.Seconds() != 60 || strings.Join(c.Upgrades, "") != "ab" {
		t.Errorf("config is %+v", c)
	}
}

func TestEveryBadVariableIsNamed(t *testing.T) {
	t.Parallel()
	o, flags := newBootstrapOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags)
	err := fromEnv(flags, func(name string) string {
		return map[string]string{"SKIPPER_HTTP_PORT": "70000", "SKIPPER_HOLD_TIMEOUT": "soon"}[name]
	})
	if err == nil || !strings.Contains(err.Error(), "SKIPPER_HTTP_PORT") || !strings.Contains(err.Error(), "SKIPPER_HOLD_TIMEOUT") {
		t.Errorf("error is %v", err)
	}
}

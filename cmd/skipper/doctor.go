package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skipper/cmd/skipper/internal/doctor"
	"skipper/cmd/skipper/internal/finding"
	"skipper/cmd/skipper/internal/output"
)

// diagnosis is the result for programs.
type diagnosis struct {
	// OK says that there is no problem; warnings may be.
	OK       bool              `json:"ok"`
	Checks   []string          `json:"checks"`
	Findings []finding.Finding `json:"findings"`
}

func newDoctor(w *world) *cobra.Command {
	b, gateways := newBase(w), ""
	b.timeout = 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is set up wrongly or does not work, and say what to do",
		Long: `Find what is set up wrongly or does not work, and say what to do.

It changes nothing. Checks: ` + strings.Join(doctor.Checks(), ", ") + `.
Each finding says what is wrong, why it matters and what to do. A problem needs
somebody soon, and makes the exit status 1; a warning can wait; unknown is what
could not be checked.`,
		Args: cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error {
			return diagnose(s, doctor.Diagnose(doctor.Collect(ctx, s.Cluster, gateways, w.now)))
		}),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	cmd.Flags().StringVar(&gateways, "gateway-selector", "app.kubernetes.io/name=skipper-envoy", "`labels` of the gateways' pods")
	return cmd
}

func diagnose(s *session, found []finding.Finding) error {
	d := diagnosis{OK: !finding.Any(found, finding.Problem), Checks: doctor.Checks(), Findings: found}
	if err := s.printer.Print(d, findingNotes(d)); err != nil {
		return err
	}
	if !d.OK {
		n := 0
		for _, f := range found {
			if f.Severity == finding.Problem {
				n++
			}
		}
		return fmt.Errorf("problems found: %d", n)
	}
	return nil
}

func findingNotes(d diagnosis) output.Notes {
	tones := map[finding.Severity]output.Tone{finding.Problem: output.Bad, finding.Warning: output.Warn}
	out := output.Notes{}
	for _, f := range d.Findings {
		out.All = append(out.All, output.Note{
			Mark: output.Toned(string(f.Severity), tones[f.Severity]), Title: f.Check + ": " + f.Subject + ": " + f.What,
			Lines: []output.Pair{{Name: "why", Value: output.Text(f.Why)}, {Name: "do", Value: output.Text(f.Do)}},
		})
	}
	if len(d.Findings) == 0 {
		out.Last = output.Toned("all is well: "+strings.Join(d.Checks, ", "), output.Good)
	}
	return out
}

package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/output"
	"skipper/function/token"
)

// verifyOptions are the flags of "token verify".
type verifyOptions struct {
	file, namespace string
	target          token.Target
}

// errNotGenuine ends the program with 1; the result says why.
var errNotGenuine = errors.New("the token is not to be believed")

func newToken(w *world) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Check assignment tokens, and sign functions", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(newVerify(w), newSign(w))
	return cmd
}

func newVerify(w *world) *cobra.Command {
	b, o := newBase(w), &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify [TOKEN]",
		Short: "Check an assignment token, and print what it says",
		Long: `Check an assignment token, and print what it says: signature, times, and with
--pod, --uid and --function whom it is for. Without TOKEN it is read from the input,
which keeps it out of the shell's history. The exit status is 1 where a check fails.`,
		Example: "  skipper token verify < token.txt\n  skipper token verify --public-key-file public.pem --pod echo-7d9f-abcde < token.txt",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.file == "" {
				return b.run(o.run)(cmd, args)
			}
			out := output.Printer{Out: cmd.OutOrStdout(), Format: b.format, Colour: output.Colours(cmd.OutOrStdout(), w.getenv)}
			return o.run(cmd.Context(), &session{world: w, printer: out, in: cmd.InOrStdin(), args: args}) // no cluster is needed
		},
	}
	b.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.file, "public-key-file", "", "PEM `file` of public keys; empty: those of the ConfigMap skipper-paseto-public-key")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`namespace` of that ConfigMap; empty: the first that the controllers manage")
	f.StringVar(&o.target.Pod, "pod", "", "name of the pod that the token must be for; empty: any")
	f.StringVar(&o.target.UID, "uid", "", "UID of the pod that the token must be for; empty: any")
	f.StringVar(&o.target.Function, "function", "", "the X-Skipper-Function header, byte for byte, that the token must be for; empty: any")
	return cmd
}

// verified is the result for programs.
type verified struct {
	Valid        bool      `json:"valid"`
	Problems     []string  `json:"problems"`
	Tenant       string    `json:"tenant"`
	Pod          string    `json:"pod"`
	UID          string    `json:"uid"`
	FunctionHash string    `json:"function_hash"`
	IssuedAt     time.Time `json:"issued_at"`
	NotBefore    time.Time `json:"not_before"`
	Expires      time.Time `json:"expires_at"`
}

func (o *verifyOptions) run(ctx context.Context, s *session) error {
	text, err := tokenText(s.in, s.args)
	if err != nil {
		return err
	}
	public, err := o.keys(ctx, s)
	if err != nil {
		return err
	}
	claims, err := token.Parse(public, text)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotGenuine, err)
	}
	r := o.judge(claims, s.world.now())
	if err := s.printer.Print(r, verifiedSheet(r, s.world.now())); err != nil {
		return err
	}
	if !r.Valid {
		return fmt.Errorf("%w: %s", errNotGenuine, output.Clean(strings.Join(r.Problems, "; ")))
	}
	return nil
}

// tokenText is the argument, or what the input holds.
func tokenText(in io.Reader, args []string) (string, error) {
	if len(args) > 0 && args[0] != "-" {
		return strings.TrimSpace(args[0]), nil
	}
	text, err := io.ReadAll(io.LimitReader(in, 4*token.MaxLength)) // a real one is shorter, and a longer one refused
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (o *verifyOptions) keys(ctx context.Context, s *session) ([]ed25519.PublicKey, error) {
	text, from := "", o.file
	if from != "" {
		b, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("read public keys: %w", err)
		}
		text = string(b)
	} else {
		ns := o.namespace
		if ns == "" {
			managed, err := s.FunctionNamespaces(ctx)
			if err != nil {
				return nil, err
			}
			ns = managed[0]
		}
		m, err := s.Kube.CoreV1().ConfigMaps(ns).Get(ctx, publicMap, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read public keys (or name a file by --public-key-file): %w", err)
		}
		text, from = m.Data[publicFile], "configmap "+ns+"/"+publicMap
	}
	public, err := token.ParsePublicKeys([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("read public keys of %s: %w", from, err)
	}
	return public, nil
}

// judge checks the claims of a token whose signature is good.
func (o *verifyOptions) judge(c token.Claims, now time.Time) verified {
	r := verified{Problems: []string{}, Tenant: c.Tenant, Pod: c.Pod, UID: c.UID, FunctionHash: c.FunctionHash, IssuedAt: c.IssuedAt, NotBefore: c.NotBefore, Expires: c.Expires}
	if err := c.CheckTime(now, token.Leeway); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	for _, check := range []struct {
		what, wanted, is, hash string
	}{{"pod", o.target.Pod, c.Pod, o.target.Pod}, {"pod UID", o.target.UID, c.UID, o.target.UID}, {"function", o.target.Function, c.FunctionHash, token.FunctionHash(o.target.Function)}} {
		if check.wanted != "" && check.hash != check.is {
			r.Problems = append(r.Problems, fmt.Sprintf("token is for another %s than %.200q", check.what, check.wanted))
		}
	}
	r.Valid = len(r.Problems) == 0
	return r
}

func verifiedSheet(r verified, now time.Time) output.Sheet {
	var s output.Sheet
	valid := output.Toned("yes", output.Good)
	if !r.Valid {
		valid = output.Toned("no: "+strings.Join(r.Problems, "; "), output.Bad)
	}
	s.Add("Valid", valid)
	s.Add("Tenant", output.Text(r.Tenant))
	s.Add("Pod", output.Text(r.Pod))
	s.Add("Pod UID", output.Text(r.UID))
	s.Add("Function hash", output.Text(r.FunctionHash))
	s.Add("Issued", output.Text(r.IssuedAt.Format(time.RFC3339)))
	s.Add("Valid from", output.Text(r.NotBefore.Format(time.RFC3339)))
	s.Add("Expires", output.Text(fmt.Sprintf("%s (in %s)", r.Expires.Format(time.RFC3339), r.Expires.Sub(now).Round(time.Second))))
	return s
}

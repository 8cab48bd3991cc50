package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/invoke"
	"skipper/cmd/skipper/internal/output"
	"skipper/cmd/skipper/internal/view"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// invokeOptions are the flags of "invoke".
type invokeOptions struct {
	configuration
	signing
	method   string
	headers  []string
	data     string
	gateway  string
	selector string
}

// errNotTheFunction ends the program with 1 when Skipper answered itself; the
// answer says why.
var errNotTheFunction = errors.New("the function did not answer")

func newInvoke(w *world) *cobra.Command {
	b, o := newBase(w), &invokeOptions{}
	b.timeout = time.Minute
	cmd := &cobra.Command{
		Use:   "invoke FUNCTION [PATH]",
		Short: "Send a request to a function, and tell who answered and how long it took",
		Long: `Send a request to a function through the gateway, and tell who answered and how
long it took.

Told are the status, whether the start was cold or warm, the instance, the size of
the body, and how long this command waited, by its own clock: for the name (DNS), the
connection, TLS, from the request's last byte to the answer's first one (First byte:
gateway, cold start and function together), and in total. A stage that there was
not is left out. What a cold start spends where is in the controllers' metrics
(docs/metrics.md) and in traces (docs/tracing.md).

FUNCTION is NAMESPACE/DEPLOYMENT/TENANT, with /oneshot behind it for a oneshot, or
the JSON of an X-Skipper-Function header. Metadata and scale that are not given are
those in force, as the function's pods have them: a request with others would have
its instances replaced.

The body goes to the output, the rest to the error output; with -o json or yaml all
of it to the output. It fails if Skipper answered instead of the function, and says
the reason (docs/responses.md). A start is cold if the request had to wait for an
instance, as far as the pods show that.`,
		Example: "  skipper invoke functions/echo/me /hello\n  skipper invoke functions/echo/me/oneshot / -d @body.json -H 'Content-Type: application/json'",
		Args:    cobra.RangeArgs(1, 2),
		RunE:    b.run(func(ctx context.Context, s *session) error { return o.run(ctx, s) }), ValidArgsFunction: b.complete(functionNames),
	}
	b.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "", "`URL` of the gateway; empty: a port forward to one of its pods")
	f.StringVar(&o.selector, "gateway-selector", "app.kubernetes.io/name=skipper-envoy", "`labels` of the gateway's pods")
	f.StringVarP(&o.method, "request", "X", "", "`method`; empty: GET, or POST with --data")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "`header` to send, as \"Name: value\"; may be repeated")
	f.StringVarP(&o.data, "data", "d", "", "body to send; @FILE reads it from a file, @- from the input")
	o.configuration.addFlags(f, thatInForce)
	o.signing.addFlags(f, "signing-key-file", "; empty: it is sent as JSON")
	return cmd
}

// invoked is the result for programs.
type invoked struct {
	Function string `json:"function"`
	invoke.Result
	Start invoke.Start `json:"start"`
	// Body is the answer's, where it is text; BodyBase64 where it is not.
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"body_base64,omitempty"`
}

func (o *invokeOptions) run(ctx context.Context, s *session) error {
	named, err := view.ParseFunction(s.args[0])
	if err != nil {
		return err
	}
	before, unseen := s.podsOf(ctx, named) // a guest may send requests and not see pods
	if unseen != nil {
		s.say("metadata and scale in force are not known: %v", unseen)
	}
	f, err := o.complete(named, inForce(named, before), s.changed)
	if err != nil {
		return err
	}
	r, closeBody, err := o.request(ctx, s, f)
	if err != nil {
		return err
	}
	defer closeBody()
	var captured bytes.Buffer
	body := io.Writer(&captured)
	if s.printer.Format == output.Table || s.printer.Format == "" {
		body = s.printer.Out
	}
	result, err := invoke.Do(ctx, r, body)
	if err != nil && result.Status == 0 {
		return err
	}
	out := invoked{Function: fn.KeyOf(f).String(), Result: result, Start: invoke.Start{Kind: invoke.Unknown, Why: "pods cannot be seen"}}
	if after, lost := s.podsOf(ctx, f); unseen == nil && lost == nil && result.Reason == "" {
		out.Start = invoke.JudgeStart(fn.KeyOf(f), before, after)
	}
	return errors.Join(err, o.report(s, out, captured.Bytes()))
}

// report prints the result, and says by its error who answered.
func (o *invokeOptions) report(s *session, out invoked, body []byte) error {
	if out.Reason != "" {
		out.Start = invoke.Start{Kind: invoke.Unknown, Why: "no instance answered"}
	}
	if out.Body = string(body); !utf8.Valid(body) {
		out.Body, out.BodyBase64 = "", body
	}
	p := s.printer
	if p.Format == output.Table || p.Format == "" {
		p.Out, p.Colour = s.note, output.Colours(s.note, s.world.getenv)
		if _, err := fmt.Fprintln(s.note); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if err := p.Print(out, invokeSheet(out)); err != nil {
		return err
	}
	if out.Reason != "" {
		return fmt.Errorf("%w: %d %s (docs/responses.md)", errNotTheFunction, out.Status, output.Clean(out.Reason))
	}
	return nil
}

func invokeSheet(r invoked) output.Sheet {
	var s output.Sheet
	tone := output.Good
	if r.Status >= http.StatusBadRequest {
		tone = output.Bad
	}
	s.Add("Function", output.Text(r.Function))
	s.Add("Status", output.Toned(strings.TrimSpace(fmt.Sprint(r.Status, " ", r.Text)), tone))
	s.Add("Reason", output.Toned(r.Reason, output.Bad))
	s.Add("Start", output.Text(r.Start.Kind+": "+r.Start.Why))
	s.Add("Instance", output.Text(r.Start.Instance))
	s.Add("Body", output.Text(fmt.Sprint(r.Bytes, " bytes")))
	for _, t := range []struct {
		stage   string
		seconds float64
	}{{"DNS", r.Stages.DNS}, {"Connect", r.Stages.Connect}, {"TLS", r.Stages.TLS}, {"First byte", r.Stages.FirstByte}, {"Total", r.Stages.Total}} {
		if t.seconds > 0 {
			s.Add(t.stage, output.Text(fmt.Sprintf("%.1f ms", t.seconds*1000)))
		}
	}
	return s
}

// request puts together what is sent. closeBody ends the reading of its file.
func (o *invokeOptions) request(ctx context.Context, s *session, f *skipperpb.Function) (r invoke.Request, closeBody func(), err error) {
	r = invoke.Request{Method: strings.ToUpper(o.method)}
	if r.Function, err = o.headerOf(f, s.world.now()); err != nil {
		return r, nil, err
	}
	if r.Header, err = parseHeaders(o.headers); err != nil {
		return r, nil, err
	}
	base, err := o.base(ctx, s)
	if err != nil {
		return r, nil, err
	}
	path := ""
	if len(s.args) > 1 {
		path = s.args[1]
	}
	if r.URL, err = join(base, path); err != nil {
		return r, nil, err
	}
	if r.Method == "" {
		r.Method = http.MethodGet
		if s.changed("data") {
			r.Method = http.MethodPost
		}
	}
	r.Body, closeBody, err = o.body(s)
	return r, closeBody, err
}

// base is the gateway's URL.
func (o *invokeOptions) base(ctx context.Context, s *session) (string, error) {
	if o.gateway != "" {
		return o.gateway, nil
	}
	pods, err := s.Kube.CoreV1().Pods(s.System).List(ctx, metav1.ListOptions{LabelSelector: o.selector})
	if err != nil {
		return "", fmt.Errorf("find a gateway (or name one by --gateway): %w", err)
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
	if i < 0 {
		return "", fmt.Errorf("no gateway is ready in namespace %s with labels %s: name one by --gateway", s.System, o.selector)
	}
	addr, err := s.ForwardUntilClose(ctx, s.System, pods.Items[i].Name, httpPort(&pods.Items[i]))
	if err != nil {
		return "", err
	}
	return "http://" + addr, nil
}

// httpPort is the port for requests in the manifests, by its name.
func httpPort(p *corev1.Pod) uint16 {
	for i := range p.Spec.Containers {
		for _, c := range p.Spec.Containers[i].Ports {
			if c.Name == "http" {
				return uint16(c.ContainerPort)
			}
		}
	}
	return 10000
}

func (o *invokeOptions) body(s *session) (io.Reader, func(), error) {
	name, file := strings.CutPrefix(o.data, "@")
	switch {
	case !s.changed("data"):
		return nil, func() {}, nil
	case file && name == "-":
		return s.in, func() {}, nil
	case file:
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read body: %w", err)
		}
		return f, func() { _ = f.Close() }, nil
	}
	return strings.NewReader(o.data), func() {}, nil
}

// join puts a path, which may have a query, behind the gateway's URL.
func join(base, path string) (string, error) {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("--gateway %.200q is no URL: write http://HOST:PORT", base)
	}
	p, err := url.Parse("/" + strings.TrimLeft(path, "/"))
	if err != nil {
		return "", fmt.Errorf("%.200q is no path: write /PATH, with ?QUERY behind it", path)
	}
	joined := u.JoinPath(p.EscapedPath())
	joined.RawQuery, joined.Fragment = p.RawQuery, ""
	return joined.String(), nil
}

// parseHeaders reads "Name: value" lines. X-Skipper-Function is made from the
// function, so it cannot be given.
func parseHeaders(lines []string) (http.Header, error) {
	out := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		switch {
		case !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, fmt.Errorf("--header %.200q is none: write 'Name: value'", line)
		case strings.EqualFold(name, "X-Skipper-Function"):
			return nil, errors.New("--header X-Skipper-Function: name the function as the argument, which may be the header's JSON")
		}
		out.Add(name, value)
	}
	return out, nil
}

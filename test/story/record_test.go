//go:build e2e

package story

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"skipper/test/browser"
)

var record = flag.Bool("record", false, "write docs/story.md and its pictures anew")

// patience bounds how long a step is tried: longer than a function that nobody
// uses keeps its instances.
const patience = 4 * time.Minute

// evening is what the commands run with.
type evening struct {
	dir string   // where they run, and leave their files
	env []string // with the command line built from this tree
}

func TestStory(t *testing.T) {
	lines := readPage(t)
	steps, err := parse(lines)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	e := newEvening(ctx, t)
	e.clear(ctx, t)
	outputs, pictures := make([][]string, len(steps)), map[string][]byte{}
	for i, s := range steps {
		if s.command == "" {
			pictures[s.picture] = e.show(ctx, t, s)
			continue
		}
		outputs[i] = e.tell(ctx, t, s)
		if gone := lost(s.output, outputs[i]); len(gone) > 0 && !*record {
			t.Errorf("%s prints %q no more:\n%s", s.command, gone, strings.Join(outputs[i], "\n"))
		}
	}
	if *record && !t.Failed() {
		write(t, pageFile, []byte(strings.Join(rewrite(lines, steps, outputs), "\n")))
		for file, png := range pictures {
			write(t, filepath.Join(filepath.Dir(pageFile), file), png)
		}
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newEvening builds the command line, so that it is this tree's that is recorded.
func newEvening(ctx context.Context, t *testing.T) *evening {
	t.Helper()
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: name the local cluster's, as package story says")
	}
	bin := t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, "skipper"), "../../cmd/skipper")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command line: %v\n%s", err, out)
	}
	return &evening{dir: t.TempDir(), env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NO_COLOR=1")}
}

// clear waits until an earlier evening is forgotten, so that the first request is
// a cold one.
func (e *evening) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	e.run(ctx, t, step{command: "skipper drain --wait --function functions/echo/evening", mayFail: true})
	steps, err := parse([]string{`<!-- recorded until="^no instances" -->`, "```", "$ skipper instances --tenant evening", "```"})
	if err != nil {
		t.Fatal(err)
	}
	e.tell(ctx, t, steps[0])
}

// tell runs a command, again each second until it prints what the page waits for.
func (e *evening) tell(ctx context.Context, t *testing.T, s step) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		output := e.run(ctx, t, s)
		if s.until == nil || s.until.MatchString(strings.Join(output, "\n")) {
			return output
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s does not print %s within %s:\n%s", s.command, s.until, patience, strings.Join(output, "\n"))
		}
	}
}

// run gives a command to the shell, as its reader would.
func (e *evening) run(ctx context.Context, t *testing.T, s step) []string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", "-c", s.command)
	cmd.Dir, cmd.Env, cmd.WaitDelay = e.dir, e.env, 5*time.Second
	out, err := cmd.CombinedOutput()
	var status *exec.ExitError
	if err != nil && (!s.mayFail || !errors.As(err, &status)) {
		t.Fatalf("%s: %v\n%s", s.command, err, out)
	}
	return printed(string(out))
}

// show opens a page of a controller and takes a picture when it shows what the
// story waits for.
func (e *evening) show(ctx context.Context, t *testing.T, s step) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ip := e.run(ctx, t, step{command: `kubectl -n skipper-system get pods -l app.kubernetes.io/name=skipper-controller -o jsonpath='{.items[0].status.podIP}'`})
	if len(ip) != 1 {
		t.Fatalf("the controller's address is %q", ip)
	}
	page, left := context.WithTimeout(browser.Start(t, 1100, 720), patience)
	defer left()
	var png []byte
	err := chromedp.Run(page,
		chromedp.Navigate("http://"+ip[0]+":8080/"+s.address),
		until(fmt.Sprintf(`new RegExp(%q).test(document.querySelector("main").innerText)`, s.until)),
		until(drawn),
		chromedp.CaptureScreenshot(&png))
	if err != nil {
		t.Fatalf("take picture %s: %v", s.picture, err)
	}
	if len(png) > mostBytes {
		t.Errorf("picture %s has %d bytes, at most %d: narrow what it shows", s.picture, len(png), mostBytes)
	}
	return png
}

// drawn holds when a chart, where the page has one, has lines to be seen.
const drawn = `document.querySelector("svg.chart") === null || [...document.querySelectorAll("svg.chart polyline")].filter(l => l.points.length >= 5).length === 2`

// until waits for an expression to hold in the page.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(0))
}

//go:build e2e

package web

import (
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	skipperpb "skipper/proto"
	"skipper/test/browser"
)

var record = flag.Bool("record", false, "write the screenshots of docs/img anew")

// opened is a browser, with what its console said.
func opened(t *testing.T) (ctx context.Context, complaints func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(browser.Start(t, 1280, 900), 2*time.Minute)
	t.Cleanup(cancel)
	said := make(chan string, 100)
	chromedp.ListenTarget(ctx, func(e any) {
		var text string
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			text = e.Entry.Text
		default:
			return
		}
		select {
		case said <- text:
		default:
		}
	})
	return ctx, func() (all []string) {
		for len(said) > 0 {
			all = append(all, <-said)
		}
		return all
	}
}

func do(ctx context.Context, t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// until waits for an expression to hold in the page.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond))
}

// shot keeps the page as a picture for the docs.
func shot(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	var png []byte
	do(ctx, t, "take a picture", chromedp.FullScreenshot(&png, 100))
	if len(png) < 5000 {
		t.Errorf("the picture of %s has only %d bytes", name, len(png))
	}
	file := filepath.Join("../../docs/img", name+".png")
	if *record {
		if err := os.WriteFile(file, png, 0o600); err != nil {
			t.Fatal(err)
		}
	} else if _, err := os.Stat(file); err != nil {
		t.Errorf("the docs have no picture of %s; record it with -record: %v", name, err)
	}
}

// story is a world that goes on: a cold start, growth, and a drain.
type story struct{ chapter atomic.Int32 }

func (s *story) state(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
	w := world()
	busy := w.GetSupervisors()[1]
	switch s.chapter.Load() {
	case 0:
		w.Supervisors = w.GetSupervisors()[:1]
	case 1:
		busy.Instances, busy.InFlightRequests = busy.GetInstances()[2:3], 1
	case 3:
		busy.InFlightRequests = 0
		w.GetPools()[0].ReadyPods = 0
	}
	// What a tenant may choose must stay text.
	busy.GetFunction().Tenant = "busy"
	w.Events = append(w.Events, &skipperpb.Event{Sequence: 3, ControllerIp: "10.0.0.1", Message: "<img src=x onerror=alert(1)>"})
	return w, nil
}

func TestBrowserShowsTheStory(t *testing.T) {
	s := &story{}
	site := serve(t, s.state)
	ctx, complaints := opened(t)
	do(ctx, t, "open the page", chromedp.Navigate(site.URL+"/"), until(`document.querySelectorAll("tr[data-href]").length === 1`))
	s.chapter.Store(1)
	do(ctx, t, "see a cold start", until(`[...document.querySelectorAll("tr[data-href]")].some(r => r.textContent.includes("busy"))`))
	s.chapter.Store(2)
	do(ctx, t, "see growth", until(`document.querySelector("tr[data-href]").textContent.includes("40 in flight / target 10 = 4")`))
	shot(ctx, t, "overview")
	do(ctx, t, "open the function by keyboard", chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter),
		until(`location.hash === "#/function/prod/echo/busy" && document.querySelectorAll("svg.chart polyline").length === 2`),
		until(`document.body.textContent.includes("echo-d")`))
	shot(ctx, t, "function")
	s.chapter.Store(3)
	do(ctx, t, "see the drain", until(`[...document.querySelectorAll(".notice.bad")].some(n => n.textContent.includes("is empty"))`))
	do(ctx, t, "go back by keyboard", chromedp.KeyEvent(kb.Escape), until(`location.hash === "#/" && document.querySelector("h1")?.textContent === "Overview"`))
	do(ctx, t, "filter by keyboard", chromedp.KeyEvent("/"), until(`document.activeElement.id === "filter"`), chromedp.KeyEvent("calm"+kb.Enter),
		until(`document.querySelectorAll("tr[data-href]").length === 1 && document.querySelector("tr[data-href]").textContent.includes("calm")`))
	do(ctx, t, "see events", chromedp.KeyEvent("e"), until(`location.hash === "#/events" && document.querySelector("h1")?.textContent === "Events"`))
	var images int
	do(ctx, t, "look for foreign HTML", chromedp.Evaluate(`document.querySelectorAll("main img").length`, &images))
	if images != 0 {
		t.Error("a message of an event became HTML")
	}
	if all := complaints(); len(all) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(all, "\n"))
	}
}

// On a phone nothing is wider than the screen, and the dark scheme is dark.
func TestBrowserFitsScreensAndSchemes(t *testing.T) {
	s := &story{}
	s.chapter.Store(2)
	site := serve(t, s.state)
	ctx, complaints := opened(t)
	do(ctx, t, "open on a phone", chromedp.EmulateViewport(360, 740), chromedp.Navigate(site.URL+"/"), until(`document.querySelectorAll("tr[data-href]").length === 2`))
	var wide bool
	do(ctx, t, "measure", chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide))
	if wide {
		var who string
		do(ctx, t, "look for it", chromedp.Evaluate(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className).join(" ")`, &who))
		t.Errorf("wider than a narrow screen: %s", who)
	}
	background := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		var color string
		do(ctx, t, "change to "+scheme, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
			chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &color))
		background[scheme] = color
	}
	if background["light"] == background["dark"] || background["dark"] == "" {
		t.Errorf("backgrounds are %v", background)
	}
	shot(ctx, t, "narrow")
	if all := complaints(); len(all) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(all, "\n"))
	}
}

// A page that loses its controller says so, and goes on when it is back.
func TestBrowserTellsOfTrouble(t *testing.T) {
	s := &story{}
	var broken atomic.Bool
	site := serve(t, func(ctx context.Context, r *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		if broken.Load() {
			return nil, http.ErrServerClosed
		}
		return s.state(ctx, r)
	})
	ctx, _ := opened(t)
	do(ctx, t, "open the page", chromedp.Navigate(site.URL+"/"), until(`document.getElementById("live").textContent.startsWith("live")`))
	broken.Store(true)
	do(ctx, t, "see the trouble", until(`document.getElementById("live").classList.contains("bad")`))
	broken.Store(false)
	do(ctx, t, "see it end", until(`document.getElementById("live").textContent.startsWith("live")`))
}

package echo_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// However busy the machine is, the CPU that was asked for is used: 50 % of 40 ms.
func TestBurnUsesWhatItIsAskedFor(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		_, body := do(t, c, request(t, http.MethodGet, "http://"+addr+"/burn?milli=500&for=40ms", http.NoBody))
		text, _ := strings.CutPrefix(body, "burned ")
		used, err := time.ParseDuration(strings.TrimSuffix(text, "\n"))
		if err != nil || used < 20*time.Millisecond {
			t.Errorf("answer %q, %v: want at least 20ms", body, err)
		}
	})
}

func TestBurnAndHoldAreBounded(t *testing.T) {
	rows := []struct {
		path string
		want int
		body string
	}{
		{"/burn?milli=0&for=0s", 200, ""},
		{"/burn?milli=1001", 400, "query parameter milli=1001 is more than 1000\n"},
		{"/burn?milli=x", 400, "query parameter milli=\"x\" is not a number of at least 0\n"},
		{"/burn?for=x", 400, "query parameter for=\"x\" is not a duration such as 100ms\n"},
		{"/hold?mib=3&for=1ms", 200, "held 3 MiB\n"},
		{"/hold?mib=0&for=0s", 200, "held 0 MiB\n"},
		{"/hold?mib=1025", 400, "query parameter mib=1025 is more than 1024\n"},
		{"/hold?mib=-1", 400, "query parameter mib=\"-1\" is not a number of at least 0\n"},
		{"/hold?for=x", 400, "query parameter for=\"x\" is not a duration such as 100ms\n"},
	}
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, row := range rows {
			t.Run(row.path, func(t *testing.T) {
				resp, body := do(t, c, request(t, http.MethodGet, "http://"+addr+row.path, http.NoBody))
				if resp.StatusCode != row.want || row.body != "" && body != row.body {
					t.Errorf("got %d %q, want %d %q", resp.StatusCode, body, row.want, row.body)
				}
			})
		}
	})
}

// Nothing is used for a client that has left: the server, which waits for its requests, stops at once.
func TestBurnAndHoldEndWithTheClient(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, path := range []string{"/burn?milli=1000&for=1h", "/hold?mib=1&for=1h"} {
			ctx, leave := context.WithCancel(t.Context())
			r := request(t, http.MethodGet, "http://"+addr+path, http.NoBody).WithContext(ctx)
			done := make(chan error, 1)
			go func() {
				resp, err := c.Do(r)
				if err == nil {
					resp.Body.Close()
				}
				done <- err
			}()
			do(t, c, request(t, http.MethodGet, "http://"+addr+"/", http.NoBody)) // the server is at work
			leave()
			if err := <-done; err == nil {
				t.Errorf("%s was answered an hour early", path)
			}
		}
	})
}

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	skipperpb "skipper/proto"
)

// The page goes through every list, also where the cluster is empty or nothing fits.
func TestNoListIsNull(t *testing.T) {
	empty := &skipperpb.ClusterState{}
	for name, c := range map[string]cluster{
		"an empty cluster": viewOf(empty, false).narrowed(""), "nothing fits": viewOf(world(), true).narrowed("nobody"),
		"no state": viewOf(nil, true).narrowed(""),
	} {
		c.Controllers = nil // their age may be unknown
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "null"); n != 1 {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// However many filters there are, the controllers are asked once.
func TestFiltersAskNobody(t *testing.T) {
	var asked atomic.Int32
	u := New(func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		asked.Add(1)
		return world(), nil
	})
	for n := range 100 {
		q, err := clusterQuestion(url.Values{"filter": {fmt.Sprint(n)}})
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := u.answer(t.Context(), q, noon); err != nil || !json.Valid(answer) {
			t.Fatalf("%s, %v", answer, err)
		}
	}
	busy, _ := clusterQuestion(url.Values{"filter": {"busy"}})
	answer, err := u.answer(t.Context(), busy, noon)
	if err != nil || !strings.Contains(string(answer), `"functions_total":1`) || asked.Load() != 1 {
		t.Errorf("asked %d times; %s, %v", asked.Load(), answer, err)
	}
}

// Pages of many functions, that are opened at once, wait for each other and give up in time.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most, mu := 0, 0, sync.Mutex{}
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		u := New(func(ctx context.Context, _ *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
			count(1)
			defer count(-1)
			time.Sleep(2 * time.Second)
			return world(), ctx.Err()
		})
		var all sync.WaitGroup
		var answered, refused atomic.Int32
		for n := range 50 {
			q, _ := functionQuestion(url.Values{"namespace": {"a"}, "deployment": {"b"}, "tenant": {fmt.Sprint(n)}})
			all.Go(func() {
				if _, err := u.answer(t.Context(), q, time.Now()); err != nil {
					refused.Add(1)
				} else {
					answered.Add(1)
				}
			})
		}
		all.Wait()
		if most != atOnce || answered.Load() < atOnce || answered.Load()+refused.Load() != 50 {
			t.Errorf("%d asked at once, %d answered, %d refused", most, answered.Load(), refused.Load())
		}
		synctest.Wait()
	})
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A stream goes on beyond what the server allows requests that end; one that nobody reads ends.
func TestStreamsOutliveTimeoutsWhileTheyAreRead(t *testing.T) {
	for reads, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			u := New(func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
				return world(), nil
			})
			mux := http.NewServeMux()
			u.Register(mux)
			s := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
			conns, ended := make(pipes, 1), make(chan error, 1)
			go func() { ended <- s.Serve(conns) }()
			client, server := net.Pipe()
			conns <- server
			if _, err := io.WriteString(client, "GET /ui/api/cluster HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			var events atomic.Int32
			if reads {
				go func() {
					for lines := bufio.NewScanner(client); lines.Scan(); {
						if strings.HasPrefix(lines.Text(), "event: state") {
							events.Add(1)
						}
					}
				}()
			}
			time.Sleep(time.Minute)
			if got := len(u.streams); got != want || reads && events.Load() < 29 {
				t.Errorf("read: %v: %d streams have a place after a minute, want %d; %d events", reads, got, want, events.Load())
			}
			_ = client.Close()
			close(conns)
			<-ended
			_ = s.Close()
			synctest.Wait()
		})
	}
}

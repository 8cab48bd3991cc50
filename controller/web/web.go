package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	skipperpb "skipper/proto"
)

//go:embed static
var static embed.FS

const (
	// between is the time between two messages of a stream.
	between = 2 * time.Second
	// fresh is for how long an answer is good for others who ask the same.
	fresh = time.Second
	// kept bounds the views, and the answers, that are kept; the view of a large
	// cluster has some megabytes, an answer less than one.
	kept = 16
	// atOnce bounds the questions that controllers are asked at a time, whoever
	// asks: pages must not hold up operators, who ask them too.
	atOnce = 2
	// patience is how long one question to all replicas may take, with the wait for
	// others.
	patience = 5 * time.Second
	// maxStreams bounds the pages that are kept up to date at once.
	maxStreams = 32
	// unread is how long a page may leave a message unread before it loses its
	// place.
	unread = 10 * time.Second
)

// State is where the pages get what they show; see package state. What it returns
// is only read.
type State func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error)

// UI is the web interface. Its methods may be called from several goroutines.
type UI struct {
	state   State
	views   *lru.Cache[string, seen]   // by what the controllers were asked
	answers *lru.Cache[string, []byte] // by view and filter; old ones are never asked for again
	asking  singleflight.Group
	asks    chan struct{} // a place for each question
	streams chan struct{} // a place for each stream
}

// seen is what the controllers said, and when they were asked.
type seen struct {
	at   time.Time
	view cluster
}

// New returns a UI that shows what state says. It starts nothing that would have
// to be stopped but the streams, which end with their requests' contexts.
func New(state State) *UI {
	views, err := lru.New[string, seen](kept)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	answers, err := lru.New[string, []byte](kept)
	if err != nil {
		panic(err)
	}
	return &UI{
		state: state, views: views, answers: answers,
		asks: make(chan struct{}, atOnce), streams: make(chan struct{}, maxStreams),
	}
}

// Register adds the pages to a mux.
func (u *UI) Register(mux *http.ServeMux) {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	mux.Handle("GET /{$}", guarded(u.page(files)))
	mux.Handle("GET /ui/", guarded(http.StripPrefix("/ui/", http.FileServerFS(files))))
	mux.Handle("GET /ui/api/cluster", guarded(u.serve(clusterQuestion)))
	mux.Handle("GET /ui/api/function", guarded(u.serve(functionQuestion)))
}

func (u *UI) page(files fs.FS) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "index.html") })
}

// guarded lets a browser run nothing but what is embedded here.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// question is what a page asks for.
type question struct {
	ask    *skipperpb.GetClusterStateRequest
	filter string
	whole  bool
	name   string // of what is asked, for those who ask the same, whatever their filter
}

func clusterQuestion(q url.Values) (question, error) {
	filter := q.Get("filter")
	if len(filter) > 300 {
		return question{}, errors.New("filter is longer than 300 characters: shorten it")
	}
	return question{ask: &skipperpb.GetClusterStateRequest{}, filter: filter, name: "cluster"}, nil
}

func functionQuestion(q url.Values) (question, error) {
	r := &skipperpb.GetClusterStateRequest{Namespace: q.Get("namespace"), Deployment: q.Get("deployment"), Tenant: q.Get("tenant")}
	for name, value := range map[string]string{"namespace": r.Namespace, "deployment": r.Deployment, "tenant": r.Tenant} {
		if value == "" || len(value) > 253 {
			return question{}, fmt.Errorf("%s must have 1 to 253 characters: name the function as namespace, deployment and tenant", name)
		}
	}
	return question{ask: r, whole: true, name: strings.Join([]string{"function", r.Namespace, r.Deployment, r.Tenant}, "\x00")}, nil
}

// serve answers once, or in a stream where the client wants one.
func (u *UI) serve(of func(url.Values) (question, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := of(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			u.stream(w, r, q)
			return
		}
		answer, err := u.answer(r.Context(), q, time.Now())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // a client that left needs no answer
	})
}

// answer is the JSON for a question, of a view that is at most a second old.
func (u *UI) answer(ctx context.Context, q question, now time.Time) ([]byte, error) {
	last, err := u.look(ctx, q, now)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(last.at.UnixNano(), " ", q.name, " ", q.filter)
	if answer, ok := u.answers.Get(key); ok {
		return answer, nil
	}
	answer, err := json.Marshal(last.view.narrowed(q.filter))
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	u.answers.Add(key, answer)
	return answer, nil
}

// look returns the view for a question, which is asked once for all who wait.
func (u *UI) look(ctx context.Context, q question, now time.Time) (seen, error) {
	if last, ok := u.views.Get(q.name); ok && now.Sub(last.at) < fresh {
		return last, nil
	}
	got := u.asking.DoChan(q.name, func() (any, error) {
		// Not the client's context: others may wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return u.ask(ctx, q, now)
	})
	select {
	case r := <-got:
		last, _ := r.Val.(seen)
		return last, r.Err
	case <-ctx.Done():
		return seen{}, context.Cause(ctx)
	}
}

// ask waits for a place and asks the controllers.
func (u *UI) ask(ctx context.Context, q question, now time.Time) (seen, error) {
	select {
	case u.asks <- struct{}{}:
		defer func() { <-u.asks }()
	case <-ctx.Done():
		return seen{}, errors.New("too many pages ask the controllers at once: close some, or try again")
	}
	state, err := u.state(ctx, q.ask)
	if err != nil {
		return seen{}, fmt.Errorf("ask the controllers for their state: %w; try again", err)
	}
	last := seen{now, viewOf(state, q.whole)}
	u.views.Add(q.name, last)
	return last, nil
}

// stream sends the answer each two seconds until the client leaves.
func (u *UI) stream(w http.ResponseWriter, r *http.Request, q question) {
	select {
	case u.streams <- struct{}{}:
		defer func() { <-u.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, fmt.Sprintf("%d pages are kept up to date already: close one", maxStreams), http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(between)
	defer tick.Stop()
	for {
		if err := u.send(w, r, q); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// send writes one message; a state that cannot be had is one too.
func (u *UI) send(w http.ResponseWriter, r *http.Request, q question) error {
	event := "state"
	answer, err := u.answer(r.Context(), q, time.Now())
	if err != nil {
		event = "trouble"
		answer, _ = json.Marshal(err.Error()) // a string can always be encoded
	}
	to := http.NewResponseController(w)
	_ = to.SetWriteDeadline(time.Now().Add(unread)) // where there can be none, nothing is held up either
	if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, answer); err != nil {
		return err
	}
	return to.Flush()
}

package apistub

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// errStale is why an update conflicts.
var errStale = errors.New("it has been changed since it was read")

const (
	// bookmarkEvery is about how often API servers say how far a watch is.
	bookmarkEvery = time.Minute
	// longestWatch ends watches whose client names no time, as API servers do.
	longestWatch = 30 * time.Minute
)

// stream is one watch.
type stream struct {
	scheme *scheme
	gvr    schema.GroupVersionResource
	which  selection
	info   runtime.SerializerInfo
	frames interface{ Write([]byte) (int, error) }
	flush  func() error
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource) {
	which, err := selectionOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	query := r.URL.Query()
	version, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64) // 0: from now on
	initial := query.Get("sendInitialEvents") == "true"
	if _, _, _, known := s.store.since(version); !initial && version > 0 && !known {
		s.fail(w, r, apierrors.NewResourceExpired("too old resource version"))
		return
	}
	info := s.scheme.serializer(r)
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	st := stream{s.scheme, gvr, which, info, info.StreamSerializer.NewFrameWriter(w), http.NewResponseController(w).Flush}
	ctx, cancel := context.WithTimeout(r.Context(), watchTime(query.Get("timeoutSeconds")))
	defer cancel()
	objects, now := s.store.list(gvr, which)
	if initial || version == 0 {
		version = now
	}
	// An error means that the client left.
	if initial && st.initial(objects, now) != nil {
		return
	}
	_ = st.follow(ctx, s.store, version, query.Get("allowWatchBookmarks") == "true")
}

func watchTime(seconds string) time.Duration {
	if n, err := strconv.Atoi(seconds); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return longestWatch
}

// initial sends what there is, and a bookmark that says that this was it.
func (s stream) initial(objects []Object, version uint64) error {
	for _, o := range objects {
		if err := s.send(watch.Added, o); err != nil {
			return err
		}
	}
	return s.bookmark(version, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// follow sends what changes after version, until ctx ends.
func (s stream) follow(ctx context.Context, from *store, version uint64, bookmarks bool) error {
	tick := time.NewTicker(bookmarkEvery)
	defer tick.Stop()
	for {
		changes, until, next, _ := from.since(version)
		for _, c := range changes {
			if c.gvr != s.gvr || !s.which.matches(c.object) {
				continue
			}
			if err := s.send(c.kind, c.object); err != nil {
				return err
			}
		}
		version = until
		if err := s.flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		case <-tick.C:
			if err := s.bookmarkIf(bookmarks, version); err != nil {
				return err
			}
		}
	}
}

func (s stream) bookmarkIf(wanted bool, version uint64) error {
	if !wanted {
		return nil
	}
	return s.bookmark(version, nil)
}

func (s stream) bookmark(version uint64, annotations map[string]string) error {
	o, err := s.scheme.empty(s.gvr, "")
	if err != nil {
		return err
	}
	mark, ok := o.(Object)
	if !ok {
		return errors.New("kind without metadata")
	}
	mark.SetResourceVersion(strconv.FormatUint(version, 10))
	mark.SetAnnotations(annotations)
	return errors.Join(s.send(watch.Bookmark, mark), s.flush())
}

func (s stream) send(kind watch.EventType, o Object) error {
	var raw bytes.Buffer
	if err := s.info.Serializer.Encode(o, &raw); err != nil {
		return err
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw.Bytes()}}
	return s.info.StreamSerializer.Encode(event, s.frames)
}

// Package apistub is an API server of Kubernetes without a cluster: it holds
// objects in memory and speaks as much of the API as Skipper's controller asks
// for, so that one can be measured beside more pods than a small machine can run.
//
// It lists whole or in pages, watches with or without the initial objects and
// with bookmarks, gets, creates and updates, in JSON and protobuf. It deletes and
// patches nothing, checks nothing about objects, and forgets no change. What it
// does not know it answers with 405, and remembers it in Refused.
package apistub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is one of the kinds that the server has: Pod, Event, ReplicaSet, Lease
// or PodMetrics.
type Object interface {
	runtime.Object
	metav1.Object
}

// Server is the API server. Safe for concurrent use.
type Server struct {
	scheme *scheme
	store  *store
	mux    *http.ServeMux

	mu sync.Mutex
	// The fields below are guarded by mu.
	computed map[schema.GroupVersionResource]func(namespace string) []Object
	refused  []string
}

// New returns a server without objects.
func New() (*Server, error) {
	sch, err := newScheme()
	if err != nil {
		return nil, err
	}
	s := &Server{scheme: sch, store: newStore(), mux: http.NewServeMux(), computed: map[schema.GroupVersionResource]func(string) []Object{}}
	for _, prefix := range []string{"/api/{version}", "/apis/{group}/{version}"} {
		s.mux.HandleFunc(prefix+"/namespaces/{namespace}/{resource}", s.serve)
		s.mux.HandleFunc(prefix+"/namespaces/{namespace}/{resource}/{name}", s.serve)
	}
	s.mux.HandleFunc("/", s.refuse)
	return s, nil
}

// Load adds objects, which belong to the server from then on, as having been
// there for long: who watches from before them is told to list again.
func (s *Server) Load(objects ...Object) error { return s.put(s.store.load, objects) }

// Put adds an object or replaces one, and tells who watches. It belongs to the
// server from then on. An object that is replaced must keep its labels.
func (s *Server) Put(o Object) error { return s.put(s.store.put, []Object{o}) }

func (s *Server) put(into func(schema.GroupVersionResource, Object), objects []Object) error {
	for _, o := range objects {
		gvr, err := s.scheme.stamp(o)
		if err != nil {
			return err
		}
		into(gvr, o)
	}
	return nil
}

// Compute has lists of the kind of like answered by a function, which may be
// called at any time. They cannot be watched.
func (s *Server) Compute(like Object, list func(namespace string) []Object) error {
	gvr, err := s.scheme.stamp(like)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.computed[gvr] = list
	return nil
}

// Refused lists the requests that the server did not know, verb and path.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) refuse(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.refused = append(s.refused, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	s.fail(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: r.URL.Path}, r.Method))
}

// serve answers requests for objects of namespaces.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	gvr := schema.GroupVersionResource{Group: r.PathValue("group"), Version: r.PathValue("version"), Resource: r.PathValue("resource")}
	name := r.PathValue("name")
	if _, ok := s.scheme.kinds[gvr]; !ok {
		s.refuse(w, r)
		return
	}
	switch {
	case r.Method == http.MethodGet && name != "":
		s.get(w, r, gvr)
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, gvr)
	case r.Method == http.MethodGet:
		s.list(w, r, gvr)
	case r.Method == http.MethodPost && name == "", r.Method == http.MethodPut && name != "":
		s.write(w, r, gvr)
	default:
		s.refuse(w, r)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource) {
	o := s.store.get(gvr, r.PathValue("namespace"), r.PathValue("name"))
	if o == nil {
		s.fail(w, r, apierrors.NewNotFound(gvr.GroupResource(), r.PathValue("name")))
		return
	}
	s.answer(w, r, http.StatusOK, o)
}

// write creates, or updates from the version that the object names.
func (s *Server) write(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.fail(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	decoded, _, err := s.scheme.codecs.UniversalDeserializer().Decode(body, nil, nil)
	o, ok := decoded.(Object)
	if err != nil || !ok {
		s.fail(w, r, apierrors.NewBadRequest(fmt.Sprintf("decode %T: %v", decoded, err)))
		return
	}
	if _, err := s.scheme.stamp(o); err != nil {
		s.fail(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	o.SetNamespace(r.PathValue("namespace"))
	status := http.StatusOK
	if r.Method == http.MethodPost {
		status = http.StatusCreated
		err = s.store.create(gvr, o)
	} else {
		err = s.store.update(gvr, o)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, status, o)
}

// list answers with all objects that are selected, or with a page of them. The
// page that follows is that of the objects as they are when it is asked for.
func (s *Server) list(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource) {
	which, err := selectionOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	objects, version := s.objects(gvr, which)
	query := r.URL.Query()
	// Neither is a number in a first or a whole list: then it is 0.
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	objects, next := page(objects, from, limit)
	list, err := s.scheme.listOf(gvr, objects, version, next)
	if err != nil {
		s.fail(w, r, apierrors.NewInternalError(err))
		return
	}
	s.answer(w, r, http.StatusOK, list)
}

func (s *Server) objects(gvr schema.GroupVersionResource, which selection) ([]Object, uint64) {
	s.mu.Lock()
	compute := s.computed[gvr]
	s.mu.Unlock()
	if compute == nil {
		return s.store.list(gvr, which)
	}
	return slices.DeleteFunc(compute(which.namespace), func(o Object) bool { return !which.matches(o) }), s.store.now()
}

// page cuts limit objects out, 0 being all; next is empty after the last.
func page(objects []Object, from, limit int) (cut []Object, next string) {
	objects = objects[min(max(from, 0), len(objects)):]
	if limit <= 0 || limit >= len(objects) {
		return objects, ""
	}
	return objects[:limit], strconv.Itoa(from + limit)
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	known, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: metav1.Unversioned.Version, Kind: "Status"}
	s.answer(w, r, int(status.Code), &status)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, status int, o runtime.Object) {
	info := s.scheme.serializer(r)
	var body bytes.Buffer
	if err := info.Serializer.Encode(o, &body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a client that left needs no answer
}

// listMeta completes a list.
func listMeta(list runtime.Object, version uint64, next string) error {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	m.SetResourceVersion(strconv.FormatUint(version, 10))
	m.SetContinue(next)
	return nil
}

package k8s

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watchcache/watchcache"
)

// ListerWatcherOptions are the settings of [NewListerWatcher]. The zero value works where
// T is the type of the objects themselves.
type ListerWatcherOptions[T any] struct {
	// Object makes Kubernetes' object of the cache's. Default: the object itself, which
	// must be a [runtime.Object] with metadata. What it returns is not changed here, and
	// must not be by who gets it.
	Object func(key string, object T) (runtime.Object, error)
	// Empty makes an object without anything in it, for bookmarks: clients want theirs to be
	// of the type that they watch. Default: a new one of what T points to; with Object it
	// must be set.
	Empty func() runtime.Object
	// Select chooses what is listed and watched, and how a watch that stalls is dealt
	// with: Key, Prefix, From, To, Index, Filter, Stall and Name of it are used.
	Select watchcache.WatchOptions[T]
	// BookmarkEvery is how often a watch that asked for bookmarks gets one while nothing
	// else happens. Default a minute.
	BookmarkEvery time.Duration
}

// resultBuffer is the least that clients expect of a watch's channel.
const resultBuffer = 16

// ListerWatcher is what client-go lists and watches in place of a server: a
// cache.ListerWatcher and cache.ListerWatcherWithContext of its. It may be shared, and
// used concurrently.
type ListerWatcher[T any] struct {
	c    *watchcache.Cache[T]
	opts ListerWatcherOptions[T]
}

// NewListerWatcher returns what an informer or a reflector of client-go lists and watches
// to follow a cache of the same process.
//
// The newest state is the cache's. A list or a watch with a resource version waits until
// the cache is there, for as long as its context; resourceVersionMatch Exact is not
// supported. Lists are whole: limits are left out of account, as Kubernetes does for what
// it serves from memory. Label selectors are supported, and field selectors for
// metadata.name and metadata.namespace. Watches have bookmarks, the state as initial
// events with the bookmark that ends them, and timeouts. A watch from a resource version
// that history has dropped is an error 410, Expired; one that the stall policy has evicted
// is closed, as API servers do it.
//
// Objects carry the revision of their last change as resource version: where theirs is
// another, they are copied. Of the events of one commit all have the same: who stops in
// the middle of one and goes on from there misses the rest, so take what is there first.
//
// Errors: watchcache.ErrInvalidOption, if Object or Empty is missing.
func NewListerWatcher[T any](c *watchcache.Cache[T], opts ListerWatcherOptions[T]) (*ListerWatcher[T], error) {
	if opts.Object == nil {
		if !reflect.TypeFor[T]().Implements(reflect.TypeFor[runtime.Object]()) {
			return nil, fmt.Errorf("%w: ListerWatcherOptions.Object is missing: a %v is no runtime.Object", watchcache.ErrInvalidOption, reflect.TypeFor[T]())
		}
		opts.Object = func(_ string, object T) (runtime.Object, error) { return any(object).(runtime.Object), nil }
		if t := reflect.TypeFor[T](); opts.Empty == nil && t.Kind() == reflect.Pointer {
			opts.Empty = func() runtime.Object { return reflect.New(t.Elem()).Interface().(runtime.Object) }
		}
	}
	if opts.Empty == nil {
		return nil, fmt.Errorf("%w: ListerWatcherOptions.Empty is missing", watchcache.ErrInvalidOption)
	}
	if opts.BookmarkEvery <= 0 {
		opts.BookmarkEvery = time.Minute
	}
	return &ListerWatcher[T]{c, opts}, nil
}

// List is ListWithContext, without a bound to how long it waits for the cache.
func (l *ListerWatcher[T]) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext, without a bound to how long it waits for the cache.
func (l *ListerWatcher[T]) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

// ListWithContext returns an [internalversion.List].
func (l *ListerWatcher[T]) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	r, err := parse(options)
	if err != nil {
		return nil, err
	}
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return nil, apierrors.NewBadRequest("resourceVersionMatch Exact is not supported")
	}
	opts := l.watchOptions(r)
	opts.AtLeast = r.revision
	w, err := l.c.Watch(ctx, opts)
	if err != nil {
		return nil, status(err)
	}
	list := &internalversion.List{}
	for ev, err := range w.Events() { // up to Synced: that is a state of one revision
		if err != nil {
			return nil, status(err)
		}
		if ev.Type == watchcache.Synced {
			list.ResourceVersion = strconv.FormatUint(ev.Revision, 10)
			break
		}
		object, err := l.object(ev.Key, ev.Object, ev.Revision)
		if err != nil {
			return nil, status(err)
		}
		list.Items = append(list.Items, object)
	}
	return list, nil
}

// WatchWithContext returns a watch with one goroutine, which ends with the watch, with
// ctx, or with the cache.
func (l *ListerWatcher[T]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	r, err := parse(options)
	if err != nil {
		return nil, err
	}
	opts := l.watchOptions(r)
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	switch {
	case initial:
		opts.AtLeast = r.revision
	case r.revision > 0: // after all its parts: a client that is at it has them
		at := watchcache.Position{Epoch: l.c.Position().Epoch, Revision: r.revision, Part: math.MaxUint32}
		opts.Start = watchcache.After(at).AllowFuture()
	case options.SendInitialEvents != nil:
		opts.Start = watchcache.FromNow()
	}
	if options.AllowWatchBookmarks {
		opts.Bookmarks = l.opts.BookmarkEvery
	}
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0 {
		opts.Deadline = time.Now().Add(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	w, err := l.c.Watch(ctx, opts)
	if err != nil {
		return nil, status(err)
	}
	s := &stream[T]{
		from: l, w: w,
		initialEnd: initial && options.AllowWatchBookmarks,
		results:    make(chan watch.Event, resultBuffer), stopped: make(chan struct{}),
	}
	go s.run()
	return s, nil
}

// IsWatchListSemanticsUnSupported tells client-go that watches may begin with the state.
func (l *ListerWatcher[T]) IsWatchListSemanticsUnSupported() bool { return false }

func (l *ListerWatcher[T]) watchOptions(r request) watchcache.WatchOptions[T] {
	chosen := &l.opts.Select
	opts := watchcache.WatchOptions[T]{
		Key: chosen.Key, Prefix: chosen.Prefix, From: chosen.From, To: chosen.To, Index: chosen.Index,
		Filter: chosen.Filter, Stall: chosen.Stall, Name: chosen.Name,
	}
	if !r.everything() { // a filter has events when objects begin and cease to be selected
		opts.Filter = func(key string, object T) bool {
			if chosen.Filter != nil && !chosen.Filter(key, object) {
				return false
			}
			o, err := l.opts.Object(key, object)
			return err != nil || r.selects(o) // the error is told when the event is delivered
		}
	}
	return opts
}

// object is Kubernetes' object at a revision.
func (l *ListerWatcher[T]) object(key string, object T, revision uint64) (runtime.Object, error) {
	o, err := l.opts.Object(key, object)
	if err != nil {
		return nil, fmt.Errorf("k8s: %s: %w", key, err)
	}
	header, err := meta.Accessor(o)
	if err != nil {
		return nil, fmt.Errorf("k8s: %s is a %T: %w", key, o, err)
	}
	version := strconv.FormatUint(revision, 10)
	if header.GetResourceVersion() == version {
		return o, nil
	}
	o = o.DeepCopyObject()
	if header, err = meta.Accessor(o); err != nil {
		return nil, fmt.Errorf("k8s: %s is a %T once it is copied: %w", key, o, err)
	}
	header.SetResourceVersion(version)
	return o, nil
}

// request is what is asked for of all that there is.
type request struct {
	revision uint64 // 0: any
	labels   labels.Selector
	fields   fields.Selector
}

func parse(options metav1.ListOptions) (r request, err error) {
	if v := options.ResourceVersion; v != "" {
		if r.revision, err = revisionOf(v); err != nil {
			return r, apierrors.NewBadRequest(err.Error())
		}
	}
	if options.Continue != "" {
		return r, apierrors.NewResourceExpired("lists are whole: there is nothing to continue")
	}
	if r.labels, err = labels.Parse(options.LabelSelector); err != nil {
		return r, apierrors.NewBadRequest(err.Error())
	}
	if r.fields, err = fields.ParseSelector(options.FieldSelector); err != nil {
		return r, apierrors.NewBadRequest(err.Error())
	}
	for _, q := range r.fields.Requirements() {
		if q.Field != metav1.ObjectNameField && q.Field != "metadata.namespace" {
			return r, apierrors.NewBadRequest(fmt.Sprintf("field %q cannot be selected by", q.Field))
		}
	}
	return r, nil
}

func (r request) everything() bool { return r.labels.Empty() && r.fields.Empty() }

func (r request) selects(object runtime.Object) bool {
	header, err := meta.Accessor(object)
	return err != nil || r.labels.Matches(labels.Set(header.GetLabels())) &&
		r.fields.Matches(fields.Set{metav1.ObjectNameField: header.GetName(), "metadata.namespace": header.GetNamespace()})
}

// status is an error in Kubernetes' words.
func status(err error) error {
	switch {
	case errors.Is(err, watchcache.ErrExpired):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, watchcache.ErrNotReady), errors.Is(err, watchcache.ErrTooManyWatchers):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, watchcache.ErrTimeout):
		return apierrors.NewTimeoutError(err.Error(), 1)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error(),
	}}
}

// stream is one watch.
type stream[T any] struct {
	from       *ListerWatcher[T]
	w          *watchcache.Watcher[T]
	initialEnd bool // the client waits for the bookmark that ends the initial events
	results    chan watch.Event
	stopped    chan struct{} // by the client
	once       sync.Once
}

// ResultChan returns the channel, which is closed in the end, also after Stop.
func (s *stream[T]) ResultChan() <-chan watch.Event { return s.results }

// Stop ends the watch. It may be called more than once, and by several goroutines.
func (s *stream[T]) Stop() {
	s.once.Do(func() { close(s.stopped) })
	s.w.Stop()
}

// run is the watch's goroutine. It takes whole commits: a watch that ends by itself
// does not end within one.
func (s *stream[T]) run() {
	defer close(s.results)
	for batch, err := range s.w.Batches() {
		if err != nil {
			s.tellEnd(err)
			return
		}
		for i := range batch.Events {
			ev, ok, err := s.result(&batch.Events[i])
			if err != nil {
				s.w.Stop()
				s.tellEnd(err)
				return
			}
			if ok && !s.send(ev) {
				return
			}
		}
	}
}

// send waits until the client takes an event. It returns false if that is not to be
// waited for any more: the stall policy counts for how long it takes.
func (s *stream[T]) send(ev watch.Event) bool {
	select {
	case s.results <- ev:
		return true
	case <-s.stopped:
	case <-s.w.Done():
	}
	return false
}

// tellEnd tells an error that is not the end of every watch. It does not wait: who
// has a full channel gets it closed.
func (s *stream[T]) tellEnd(err error) {
	var stalled *watchcache.StalledError
	switch {
	case errors.As(err, &stalled), errors.Is(err, watchcache.ErrStopped), errors.Is(err, watchcache.ErrDeadline),
		errors.Is(err, watchcache.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return
	}
	told := status(err).(apierrors.APIStatus).Status()
	select {
	case s.results <- watch.Event{Type: watch.Error, Object: &told}:
	default:
	}
}

// result makes of an event what the client gets; false: nothing.
func (s *stream[T]) result(ev *watchcache.Event[T]) (watch.Event, bool, error) {
	var as watch.EventType
	switch ev.Type {
	case watchcache.Added:
		as = watch.Added
	case watchcache.Modified:
		as = watch.Modified
	case watchcache.Deleted:
		as = watch.Deleted
	case watchcache.Synced, watchcache.Bookmark:
		if ev.Type == watchcache.Synced && !s.initialEnd {
			return watch.Event{}, false, nil
		}
		object := s.from.opts.Empty()
		header, err := meta.Accessor(object)
		if err != nil {
			return watch.Event{}, false, fmt.Errorf("k8s: a bookmark is a %T: %w", object, err)
		}
		header.SetResourceVersion(strconv.FormatUint(ev.Revision, 10))
		if ev.Type == watchcache.Synced {
			header.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		return watch.Event{Type: watch.Bookmark, Object: object}, true, nil
	default:
		return watch.Event{}, false, fmt.Errorf("k8s: an event of type %v cannot be told to a client", ev.Type)
	}
	last := ev.Object
	if ev.Type == watchcache.Deleted && ev.Cause != watchcache.Removed {
		last = ev.Prev // as it was when it was selected
	}
	object, err := s.from.object(ev.Key, last, ev.Revision)
	return watch.Event{Type: as, Object: object}, true, err
}

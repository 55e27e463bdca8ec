package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/watchcache/watchcache"
)

// resultBuffer is how many events a client's channel holds. What it leaves there when it
// stops stays readable.
const resultBuffer = 16

// Watch watches objects, from the cache alone:
//
//   - resource version "0", or "" : the state as initial events, then changes.
//   - another: the changes after it, also where the cache has yet to get there.
//   - sendInitialEvents: the state, as new as etcd is now ("") or as the resource version,
//     then, with allowWatchBookmarks, the bookmark that ends it, then changes.
//   - sendInitialEvents false: changes from now on, of etcd ("") or of the cache ("0").
//
// Who asked for bookmarks gets one every minute and two seconds before the context's
// deadline, once there is something to tell. A watch that the stall policy ends is closed,
// as is every watch when the state was listed anew: what was missed answers 410 to who
// comes back, and it is for the client to list.
//
// Objects implement runtime.CacheableObject, and are encoded once for all; each client's
// is its own to change.
//
// Errors: 429 with Retry-After while the cache is not ready; what is wrong with key or
// resource version. Others come as an event of type ERROR: 410, Expired; after three
// seconds storage.IsTooLargeResourceVersion.
func (s *Store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.WatchList) {
		opts.SendInitialEvents = nil
	}
	key, err := storage.PrepareKey(s.config.ResourcePrefix, key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	revision, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if !s.ready() {
		return nil, s.notReady()
	}
	start, err := s.start(ctx, revision, opts)
	if err != nil {
		return failed(err), nil
	}
	w, err := s.watcher(ctx, key, start, opts)
	if err != nil {
		return refused(err), nil
	}
	if _, after := start.Position(); after {
		utilflowcontrol.WatchInitialized(ctx)
	}
	out := &stream{w: w}
	t := teller{s: s, ctx: ctx, w: w, marker: marked(opts)}
	out.results = watchcache.Pipe(w, resultBuffer, t.tell)
	return out, nil
}

// marked reports whether a bookmark is to tell where the initial events end.
func marked(opts storage.ListOptions) bool {
	return opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.Predicate.AllowWatchBookmarks
}

// start waits for what a watch must begin with.
func (s *Store) start(ctx context.Context, revision uint64, opts storage.ListOptions) (watchcache.Start, error) {
	if marked(opts) && !delegator.ConsistentReadSupported() {
		return watchcache.Start{}, fmt.Errorf("k8s: initial events were asked for, but etcd cannot be asked for progress")
	}
	if opts.ResourceVersion == "" && opts.SendInitialEvents != nil {
		var err error
		if revision, err = s.GetCurrentResourceVersion(ctx); err != nil {
			return watchcache.Start{}, err
		}
	}
	switch {
	case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
		return watchcache.FromState(), s.waitFresh(ctx, revision)
	case revision > 0:
		return s.afterAll(revision).AllowFuture(), nil
	case opts.SendInitialEvents != nil:
		return watchcache.After(s.cache.Position()), nil
	}
	return watchcache.FromState(), nil
}

// afterAll starts after all parts of a revision: a client that is at it has them.
func (s *Store) afterAll(revision uint64) watchcache.Start {
	return watchcache.After(watchcache.Position{Epoch: s.cache.Position().Epoch, Revision: revision, Part: math.MaxUint32})
}

func (s *Store) watcher(ctx context.Context, key string, start watchcache.Start, opts storage.ListOptions) (*watchcache.Watcher[*element], error) {
	predicate := withSelectors(opts.Predicate)
	o := watchcache.WatchOptions[*element]{
		Start: start,
		Name:  fmt.Sprintf("key=%s labels=%s fields=%s", key, predicate.Label, predicate.Field),
	}
	if opts.Recursive {
		o.Prefix = key
	} else {
		o.Key = key
	}
	if !predicate.Empty() {
		o.Filter = func(_ string, e *element) bool { return e.matches(&predicate) }
		o.Index, _ = s.indexes.find(predicate.MatcherIndex(ctx))
	}
	if predicate.AllowWatchBookmarks {
		o.Bookmarks = s.config.BookmarkEvery
		if deadline, ok := ctx.Deadline(); ok {
			o.Deadline, o.DeadlineLead = deadline, deadlineLead
		}
	}
	return s.cache.Watch(ctx, o)
}

// refused is a watch that cannot begin.
func refused(err error) watch.Interface {
	switch {
	case errors.Is(err, watchcache.ErrExpired):
		return failed(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %v", err)))
	case errors.Is(err, watchcache.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return watch.NewEmptyWatch()
	}
	return failed(err)
}

// failed returns a watch with an error, and nothing else.
func failed(err error) watch.Interface {
	results := make(chan watch.Event, 1)
	results <- errorEvent(err)
	close(results)
	return watch.NewProxyWatcher(results)
}

func errorEvent(err error) watch.Event {
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonInternalError,
		Message: err.Error(),
	}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	return watch.Event{Type: watch.Error, Object: &status}
}

// stream is a client's watch. Its goroutine is Pipe's.
type stream struct {
	w       *watchcache.Watcher[*element]
	results <-chan watch.Event
}

// ResultChan returns the channel, which is closed in the end, also after Stop.
func (s *stream) ResultChan() <-chan watch.Event { return s.results }

// Stop ends the watch. It does not wait, may be called more than once, and by several
// goroutines.
func (s *stream) Stop() { s.w.Stop() }

// teller makes of the cache's events what a client gets. It belongs to Pipe's goroutine.
type teller struct {
	s      *Store
	ctx    context.Context
	w      *watchcache.Watcher[*element]
	marker bool // the end of the initial events is to be told
}

func (t *teller) tell(ev watchcache.Event[*element]) (watch.Event, bool) {
	switch ev.Type {
	case watchcache.Added:
		return watch.Event{Type: watch.Added, Object: ev.Object.deliver()}, true
	case watchcache.Modified:
		return watch.Event{Type: watch.Modified, Object: ev.Object.deliver()}, true
	case watchcache.Deleted:
		last := ev.Object
		if ev.Cause != watchcache.Removed {
			last = ev.Prev.at(ev.Revision, t.s.versioner)
		}
		return watch.Event{Type: watch.Deleted, Object: last.deliver()}, true
	case watchcache.Synced:
		utilflowcontrol.WatchInitialized(t.ctx)
		return t.bookmark(ev.Revision, t.marker), t.marker
	case watchcache.Bookmark:
		return t.bookmark(ev.Revision, false), true
	}
	t.w.Stop() // a Reset: for it there is no event
	return watch.Event{}, false
}

func (t *teller) bookmark(revision uint64, endsInitial bool) watch.Event {
	object := t.s.config.NewFunc()
	err := t.s.versioner.UpdateObject(object, revision)
	if err == nil && endsInitial {
		err = storage.AnnotateInitialEventsEndBookmark(object)
	}
	if err != nil { // NewFunc's object has no metadata: nor have others, which would not have been cached
		return errorEvent(err)
	}
	return watch.Event{Type: watch.Bookmark, Object: object}
}

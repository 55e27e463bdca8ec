package k8s

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watchcache/watchcache"
)

// SourceOptions are the settings of [NewSource]. The zero value works where T is the
// type of the objects themselves. Functions must be safe for concurrent use and pure.
type SourceOptions[T any] struct {
	// Convert makes of an object what the cache holds. Default: the object itself,
	// which must be a T.
	Convert func(object runtime.Object) (T, error)
	// Key is the key of an object. Default: namespace/name, or the name alone of what
	// has no namespace.
	Key func(object runtime.Object) (string, error)
	// Invalid is told of an object that Convert or Key refuse, which is left out of the
	// cache from then on, as if it were deleted, until it changes. The key is empty if it
	// is that which was refused. Default: such an object ends Run with the error.
	Invalid func(key string, err error)
	// PageSize is how many objects are listed at a time. Default 500.
	PageSize int64
	// WatchTimeout is for how long the server is asked to keep a watch open, at least;
	// up to twice as long, so that watches do not end together. Default 5 minutes.
	WatchTimeout time.Duration
}

const (
	defaultPageSize     = 500
	defaultWatchTimeout = 5 * time.Minute

	// A watch that ends sooner, having told nothing, has failed.
	shortWatch = time.Second

	unwatchableRetry = time.Second
)

// errUnwatchable: to Kubernetes, a watch from resource version 0 is one from any, and
// begins with the state, in no order of revisions. An API server has no list at 0, but
// what stands in for one may, while it is empty: it is listed until it has more.
var errUnwatchable = fmt.Errorf("%w: k8s: what was listed is of resource version 0, from which it cannot be watched", watchcache.ErrExpired)

var errNoKey = errors.New("k8s: the object's key is empty")

// source is what NewSource returns.
type source[T any] struct {
	from cache.ListerWatcherWithContext
	opts SourceOptions[T]
	// whole: a list in pages took longer than the server kept its revision, so that the
	// next is asked for in one piece.
	whole atomic.Bool
}

// NewSource returns a source for [watchcache.Cache.Run] that lists and watches what from
// does: a typed or dynamic client's resource, by way of a [cache.ListWatch], or anything
// else that an informer can be made from. Which namespace and which selectors is from's.
//
// It lists in pages, by consistent reads, and watches with bookmarks. Events of one
// resource version that the server has sent together are one commit. What the server says
// of expired resource versions is a relist, and how long it asks clients to wait is how
// long Run waits; everything else is tried again for as long as Run runs, as informers do,
// also what is forbidden: permissions are given later, too.
func NewSource[T any](from cache.ListerWatcher, opts SourceOptions[T]) watchcache.Source[T] {
	if opts.Convert == nil {
		opts.Convert = itself[T]
	}
	if opts.Key == nil {
		opts.Key = namespacedName
	}
	if opts.PageSize <= 0 {
		opts.PageSize = defaultPageSize
	}
	if opts.WatchTimeout <= 0 {
		opts.WatchTimeout = defaultWatchTimeout
	}
	return &source[T]{from: cache.ToListerWatcherWithContext(from), opts: opts}
}

func itself[T any](object runtime.Object) (T, error) {
	t, ok := object.(T)
	if !ok {
		return t, fmt.Errorf("k8s: the object is a %T, not a %T; SourceOptions.Convert is missing", object, t)
	}
	return t, nil
}

func namespacedName(object runtime.Object) (string, error) {
	header, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	if ns := header.GetNamespace(); ns != "" {
		return ns + "/" + header.GetName(), nil
	}
	return header.GetName(), nil
}

// List lists the newest state there is: of a consistent read it is not older than any
// revision that was seen.
func (s *source[T]) List(ctx context.Context, _ uint64) (watchcache.Position, iter.Seq2[watchcache.Item[T], error], error) {
	page, at, err := s.page(ctx, "")
	if err != nil {
		return watchcache.Position{}, nil, err
	}
	items := func(yield func(watchcache.Item[T], error) bool) {
		for {
			more, err := s.yieldPage(page, yield)
			if err != nil {
				yield(watchcache.Item[T]{}, err)
				return
			}
			if !more {
				return
			}
			token := page.continues
			if token == "" {
				s.whole.Store(false)
				return
			}
			page = listing{} // its objects go while the next ones come
			var now uint64
			if page, now, err = s.page(ctx, token); err == nil && now != at {
				err = fmt.Errorf("k8s: the list went on at resource version %d, and began at %d", now, at)
			}
			if err != nil {
				s.whole.Store(apierrors.IsResourceExpired(err))
				yield(watchcache.Item[T]{}, err)
				return
			}
		}
	}
	return watchcache.Position{Revision: at}, items, nil
}

// listing is one page of a list.
type listing struct {
	object    runtime.Object
	continues string
}

func (s *source[T]) page(ctx context.Context, token string) (listing, uint64, error) {
	opts := metav1.ListOptions{Limit: s.opts.PageSize, Continue: token}
	if s.whole.Load() {
		opts.Limit = 0
	}
	object, err := s.from.ListWithContext(ctx, opts)
	if err != nil {
		return listing{}, 0, failure(err)
	}
	header, err := meta.ListAccessor(object)
	if err != nil {
		return listing{}, 0, watchcache.Terminal(fmt.Errorf("k8s: what was listed is a %T: %w", object, err))
	}
	at, err := revisionOf(header.GetResourceVersion())
	if err != nil {
		return listing{}, 0, watchcache.Terminal(fmt.Errorf("k8s: the list's %w", err))
	}
	return listing{object, header.GetContinue()}, at, nil
}

// yieldPage returns false when the receiver has had enough.
func (s *source[T]) yieldPage(page listing, yield func(watchcache.Item[T], error) bool) (more bool, err error) {
	more = true
	// With allocation: an object must not keep its whole page in memory.
	err = meta.EachListItemWithAlloc(page.object, func(object runtime.Object) error {
		if !more {
			return nil
		}
		change, revision, err := s.change(object, false)
		if err != nil {
			return err
		}
		if !change.Delete {
			more = yield(watchcache.Item[T]{Key: change.Key, Object: change.Object, Revision: revision}, nil)
		}
		return nil
	})
	return more, err
}

// Watch watches from a position on, and goes on when the server has closed the watch
// because its time was over.
func (s *source[T]) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[T], error] {
	return func(yield func(watchcache.SourceEvent[T], error) bool) {
		if after.Revision == 0 {
			yield(watchcache.SourceEvent[T]{}, watchcache.RetryAfter(errUnwatchable, unwatchableRetry))
			return
		}
		f := follower[T]{source: s, at: after.Revision, yield: yield}
		for {
			begun, from := time.Now(), f.at
			err := f.follow(ctx)
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err == nil && f.at == from && time.Since(begun) < shortWatch {
				err = fmt.Errorf("k8s: the watch from resource version %d ended at once, and told nothing", from)
			}
			if f.enough {
				return
			}
			if err != nil {
				yield(watchcache.SourceEvent[T]{}, err)
				return
			}
		}
	}
}

// follower is one Watch of a source.
type follower[T any] struct {
	source  *source[T]
	at      uint64 // the last commit or progress that was told
	told    bool   // at is a commit of this watch: another at the same revision continues it
	pending watchcache.Commit[T]
	yield   func(watchcache.SourceEvent[T], error) bool
	enough  bool
}

// follow tells what one watch of the server tells, until it ends.
func (f *follower[T]) follow(ctx context.Context) error {
	opts := &f.source.opts
	seconds := max(1, int64((opts.WatchTimeout + rand.N(opts.WatchTimeout)).Seconds()))
	w, err := f.source.from.WatchWithContext(ctx, metav1.ListOptions{
		ResourceVersion:     strconv.FormatUint(f.at, 10),
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	})
	if err != nil {
		return failure(err)
	}
	defer w.Stop()
	for !f.enough {
		var ev watch.Event
		var open bool
		select {
		case ev, open = <-w.ResultChan():
		default: // no more of the pending commit is here yet
			if f.flush(); f.enough {
				return nil
			}
			select {
			case ev, open = <-w.ResultChan():
			case <-ctx.Done():
				return nil
			}
		}
		if !open {
			f.flush()
			return nil
		}
		if err := f.take(ev); err != nil {
			f.flush()
			return err
		}
	}
	return nil
}

func (f *follower[T]) take(ev watch.Event) error {
	switch ev.Type {
	case watch.Error:
		return failure(apierrors.FromObject(ev.Object))
	case watch.Bookmark:
		header, err := meta.Accessor(ev.Object)
		if err != nil {
			return fmt.Errorf("k8s: a bookmark is a %T: %w", ev.Object, err)
		}
		at, err := revisionOf(header.GetResourceVersion())
		if err != nil {
			return fmt.Errorf("k8s: a bookmark's %w", err)
		}
		if f.flush(); !f.enough {
			f.tell(watchcache.ProgressEvent[T](at))
			f.told = f.told && f.at == at
			f.at = at
		}
		return nil
	case watch.Added, watch.Modified, watch.Deleted:
		change, revision, err := f.source.change(ev.Object, ev.Type == watch.Deleted)
		if err != nil {
			return err
		}
		if change.Key == "" { // refused, and Invalid was told
			return nil
		}
		if len(f.pending.Changes) > 0 && f.pending.Revision != revision {
			f.flush()
		}
		f.pending.Revision = revision
		f.pending.Changes = append(f.pending.Changes, change)
		return nil
	}
	return fmt.Errorf("k8s: the watch told of an event of type %q", ev.Type)
}

// flush tells the pending commit.
func (f *follower[T]) flush() {
	if len(f.pending.Changes) == 0 || f.enough {
		return
	}
	commit := f.pending
	f.pending = watchcache.Commit[T]{}
	commit.Continues = f.told && commit.Revision == f.at
	f.at, f.told = commit.Revision, true
	f.tell(watchcache.CommitEvent(commit))
}

func (f *follower[T]) tell(ev watchcache.SourceEvent[T]) { f.enough = !f.yield(ev, nil) }

// change is what an object means to the cache. An object that Convert refuses, and
// Invalid was told of, is a deletion; one whose key was refused is one of no key.
func (s *source[T]) change(object runtime.Object, deleted bool) (watchcache.Change[T], uint64, error) {
	header, err := meta.Accessor(object)
	if err != nil {
		return watchcache.Change[T]{}, 0, watchcache.Terminal(fmt.Errorf("k8s: an object is a %T: %w", object, err))
	}
	revision, err := revisionOf(header.GetResourceVersion())
	if err != nil {
		return watchcache.Change[T]{}, 0, watchcache.Terminal(fmt.Errorf("k8s: %s/%s: its %w", header.GetNamespace(), header.GetName(), err))
	}
	change := watchcache.Change[T]{Delete: deleted}
	switch change.Key, err = s.opts.Key(object); {
	case err != nil:
		change.Key = ""
	case change.Key == "":
		err = errNoKey
	case !deleted:
		change.Object, err = s.opts.Convert(object)
	}
	switch {
	case err == nil:
		return change, revision, nil
	case s.opts.Invalid == nil:
		return change, 0, watchcache.Terminal(fmt.Errorf("k8s: %s/%s at resource version %d: %w", header.GetNamespace(), header.GetName(), revision, err))
	}
	s.opts.Invalid(change.Key, err)
	return watchcache.Change[T]{Key: change.Key, Delete: true}, revision, nil
}

func revisionOf(resourceVersion string) (uint64, error) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is no number", resourceVersion)
	}
	return revision, nil
}

// failure says what a server's error means to Run.
func failure(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = fmt.Errorf("%w: %w", watchcache.ErrExpired, err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return watchcache.RetryAfter(err, time.Duration(seconds)*time.Second)
	}
	return err
}

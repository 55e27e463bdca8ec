package watchcachetest

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/watchcache/watchcache"
)

// Subject is what [RunConformance] tests: a cache that gets its state by way of an
// adapter, or whose watchers get theirs by way of a wrapper, or both.
type Subject[T any] struct {
	// Cache is the cache that is watched. If a Run feeds it, that is under way.
	Cache *watchcache.Cache[T]

	// Encode makes an object that says a short text, for that key; Decode returns the
	// text. Neither need be there if T is string. Decode is not called for the zero T.
	Encode func(key, text string) T
	Decode func(object T) string

	// Prefix is what every key begins with in the cache: its keys are Prefix+"red/1"
	// and the like.
	Prefix string

	// Commit makes changes where the state comes from, together, and returns the
	// revision that the cache will have them at. nil: Cache.Apply. Each call has
	// at least one change, that of a key that is there only if it deletes.
	Commit func(changes ...watchcache.Change[T]) (revision uint64, err error)

	// Single says that the backend commits one change at a time: no call of Commit
	// has more.
	Single bool

	// Watch is how the wrapper's clients watch. The sequence is as that of
	// Watcher.Events: it ends with the context's cause, or another error, as its
	// last pair. nil: Cache.Watch and Events.
	Watch func(ctx context.Context, opts watchcache.WatchOptions[T]) (iter.Seq2[watchcache.Event[T], error], error)

	// Lacks names what Watch's options cannot have: "FromNow", "Filter", "Index",
	// "Coalesce", "Bookmarks", "AtLeast", "Deadline". The tests of these are left out;
	// what is not named is tested.
	Lacks []string

	// Cut, if there is a connection to the backend, breaks it. The adapter must
	// resume where it was.
	Cut func()

	// Forget, if the backend has a history, breaks the connection and has the
	// backend forget its history, so that the adapter must list anew. The kit
	// commits while it is broken.
	Forget func(meanwhile func())
}

var lackable = []string{"FromNow", "Filter", "Index", "Coalesce", "Bookmarks", "AtLeast", "Deadline"}

// complete puts in what may be left out.
func (s *Subject[T]) complete(t testing.TB) {
	t.Helper()
	if s.Encode == nil || s.Decode == nil {
		encode, ok := any(func(_, text string) string { return text }).(func(string, string) T)
		if !ok {
			t.Fatal("Subject.Encode and Decode may be left out only if T is string")
		}
		s.Encode = encode
		s.Decode = any(func(object string) string { return object }).(func(T) string)
	}
	for _, name := range s.Lacks {
		if !slices.Contains(lackable, name) {
			t.Fatalf("Subject.Lacks: there is no %q; there are %q", name, lackable)
		}
	}
	if s.Commit == nil {
		s.Commit = func(changes ...watchcache.Change[T]) (uint64, error) {
			return s.Cache.Apply(watchcache.Commit[T]{Changes: changes})
		}
	}
	if s.Watch == nil {
		s.Watch = func(ctx context.Context, opts watchcache.WatchOptions[T]) (iter.Seq2[watchcache.Event[T], error], error) {
			w, err := s.Cache.Watch(ctx, opts)
			if err != nil {
				return nil, err
			}
			return w.Events(), nil
		}
	}
}

// The trial knows of keys without the prefix, and of texts instead of objects. What
// follows goes from one side to the other.

func (s *Subject[T]) text(object T) string {
	if isZero(object) {
		return ""
	}
	return s.Decode(object)
}

func (s *Subject[T]) event(ev watchcache.Event[T]) watchcache.Event[string] {
	return watchcache.Event[string]{
		Type: ev.Type, Key: strings.TrimPrefix(ev.Key, s.Prefix), Object: s.text(ev.Object), Prev: s.text(ev.Prev),
		Revision: ev.Revision, Cause: ev.Cause, Initial: ev.Initial, More: ev.More, Time: ev.Time,
	}
}

func (s *Subject[T]) change(ch watchcache.Change[string]) watchcache.Change[T] {
	key := s.Prefix + ch.Key
	if ch.Delete {
		return watchcache.Change[T]{Key: key, Delete: true}
	}
	return watchcache.Change[T]{Key: key, Object: s.Encode(key, ch.Object)}
}

func (s *Subject[T]) options(o watchcache.WatchOptions[string]) watchcache.WatchOptions[T] {
	prefixed := func(key string) string {
		if key == "" {
			return ""
		}
		return s.Prefix + key
	}
	opts := watchcache.WatchOptions[T]{
		Start: o.Start, AtLeast: o.AtLeast, AtLeastWait: o.AtLeastWait,
		Key: prefixed(o.Key), Prefix: prefixed(o.Prefix), From: prefixed(o.From), To: prefixed(o.To), Index: o.Index,
		Bookmarks: o.Bookmarks, Deadline: o.Deadline, DeadlineLead: o.DeadlineLead, Coalesce: o.Coalesce, Name: o.Name,
	}
	if o.Filter != nil {
		opts.Filter = func(key string, object T) bool { return o.Filter(strings.TrimPrefix(key, s.Prefix), s.text(object)) }
	}
	return opts
}

// watch is Watch, seen from the trial's side.
func (s *Subject[T]) watch(ctx context.Context, opts watchcache.WatchOptions[string]) (iter.Seq2[watchcache.Event[string], error], error) {
	events, err := s.Watch(ctx, s.options(opts))
	if err != nil {
		return nil, err
	}
	return func(yield func(watchcache.Event[string], error) bool) {
		for ev, err := range events {
			if !yield(s.event(ev), err) {
				return
			}
		}
	}, nil
}

// items are those of the cache, seen from the trial's side.
func (s *Subject[T]) items(snapshot *watchcache.Snapshot[T]) iter.Seq[watchcache.Item[string]] {
	return func(yield func(watchcache.Item[string]) bool) {
		for item := range snapshot.All() {
			if !yield(watchcache.Item[string]{Key: strings.TrimPrefix(item.Key, s.Prefix), Object: s.text(item.Object), Revision: item.Revision}) {
				return
			}
		}
	}
}

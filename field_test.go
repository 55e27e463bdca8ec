package watchcache_test

// Tests named TestField… are after faults of other watch caches, so that they are
// not made here: docs/field-faults.md lists them all.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/watchcache/watchcache"
)

type (
	cache   = watchcache.Cache[int]
	watcher = watchcache.Watcher[int]
	event   = watchcache.Event[int]
	change  = watchcache.Change[int]
	commit  = watchcache.Commit[int]
	item    = watchcache.Item[int]
	options = watchcache.Options[int]
	watch   = watchcache.WatchOptions[int]
)

func newCache(t *testing.T, o options) *cache {
	t.Helper()
	c, err := watchcache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// listing is what a source lists: "a=1 b=2".
func listing(text string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for field := range strings.FieldsSeq(text) {
			var i item
			key, value, _ := strings.Cut(field, "=")
			i.Key = key
			fmt.Sscan(value, &i.Object)
			if !yield(i, nil) {
				return
			}
		}
	}
}

// mirror returns a mirror of epoch "e" that was listed at a revision.
func mirror(t *testing.T, o options, revision uint64, state string) *cache {
	t.Helper()
	o.Mirror, o.Epoch = true, "e"
	c := newCache(t, o)
	if err := c.Replace(at(revision), listing(state)); err != nil {
		t.Fatal(err)
	}
	return c
}

func at(revision uint64) watchcache.Position {
	return watchcache.Position{Epoch: "e", Revision: revision}
}

// apply commits changes at a revision: "a=1 b=2 -c".
func apply(t *testing.T, c *cache, revision uint64, text string) uint64 {
	t.Helper()
	var changes []change
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		ch := change{Key: strings.TrimPrefix(key, "-"), Delete: strings.HasPrefix(key, "-")}
		fmt.Sscan(value, &ch.Object)
		changes = append(changes, ch)
	}
	got, err := c.Apply(commit{Revision: revision, Changes: changes})
	if err != nil {
		t.Fatalf("Apply(%d, %q): %v", revision, text, err)
	}
	return got
}

func mustWatch(t *testing.T, c *cache, o watch) *watcher {
	t.Helper()
	w, err := c.Watch(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// show is an event in short: "+a=1@5", "~a=2@6", "-a=2@7" (removed), "<a=2@7" (left
// the filter), "synced@5", "bookmark@5", "reset@5". An initial one ends in "i", one
// that others of its commit follow in "…".
func show(ev event) string {
	mark := map[watchcache.EventType]string{watchcache.Added: "+", watchcache.Modified: "~", watchcache.Deleted: "-",
		watchcache.Synced: "synced", watchcache.Bookmark: "bookmark", watchcache.Reset: "reset"}[ev.Type]
	if ev.Cause == watchcache.LeftFilter {
		mark = "<"
	}
	s := fmt.Sprintf("%s@%d", mark, ev.Revision)
	if ev.Key != "" {
		s = fmt.Sprintf("%s%s=%d@%d", mark, ev.Key, ev.Object, ev.Revision)
	}
	if ev.Initial {
		s += "i"
	}
	if ev.More {
		s += "…"
	}
	return s
}

// pending takes all that a watcher has to take now.
func pending(t *testing.T, w *watcher) string {
	t.Helper()
	var all []string
	for {
		ev, ok, err := w.TryNext()
		if err != nil {
			all = append(all, "!"+reason(err))
		} else if ok {
			all = append(all, show(ev))
		}
		if !ok {
			return strings.Join(all, " ")
		}
	}
}

// numbered is a listing of n objects.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%06d=1 ", i)
	}
	return b.String()
}

// allocated is how many bytes f allocates, on all goroutines.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// reason names the sentinel that an error is.
func reason(err error) string {
	for _, e := range []error{watchcache.ErrClosed, watchcache.ErrStopped, watchcache.ErrEpoch, watchcache.ErrExpired, watchcache.ErrStalled,
		watchcache.ErrLagged, watchcache.ErrDeadline, watchcache.ErrFuture, watchcache.ErrNotReady, watchcache.ErrTimeout} {
		if errors.Is(err, e) {
			return strings.TrimPrefix(e.Error(), "watchcache: ")
		}
	}
	return fmt.Sprint(err)
}

// wantPending fails unless that is all that a watcher has to take now.
func wantPending(t *testing.T, w *watcher, want string) {
	t.Helper()
	if got := pending(t, w); got != want {
		t.Errorf("took %q, want %q", got, want)
	}
}

// wantRefused fails unless a watch is refused for that reason.
func wantRefused(t *testing.T, c *cache, o watch, want error) {
	t.Helper()
	w, err := c.Watch(context.Background(), o)
	if w != nil {
		w.Stop()
	}
	if !errors.Is(err, want) {
		t.Errorf("Watch: %v, want %v", err, want)
	}
}

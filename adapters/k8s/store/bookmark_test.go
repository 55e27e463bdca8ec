package store_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/watchcache/watchcache/adapters/k8s/store"
)

// TestBookmarks: who allows them is told how far the cache is, although nothing changes for
// it; nobody else is.
func TestBookmarks(t *testing.T) {
	f := setup(t, ours, withConfig(func(c *store.Config) { c.BookmarkEvery = 50 * time.Millisecond }))
	first := create(t, f, pod("ns", "a", ""))
	opts := storage.ListOptions{ResourceVersion: first.ResourceVersion, Recursive: true, Predicate: storage.Everything}
	without := watching(t, f, t.Context(), prefix+"ns/", opts)
	opts.Predicate.AllowWatchBookmarks = true
	with := watching(t, f, t.Context(), prefix+"ns/", opts)
	for _, name := range []string{"b", "c"} {
		elsewhere := create(t, f, pod("other", name, ""))
		for {
			ev := next(t, with)
			got, err := f.Versioner().ObjectResourceVersion(ev.Object)
			if err != nil || ev.Type != watch.Bookmark {
				t.Fatalf("took %s of %v (%v), want a bookmark", ev.Type, ev.Object, err)
			}
			want, err := f.Versioner().ObjectResourceVersion(elsewhere)
			if err != nil || got > want {
				t.Fatalf("a bookmark is at %d, and the cache at %d (%v)", got, want, err)
			}
			if got == want {
				break
			}
		}
	}
	last := create(t, f, pod("ns", "d", ""))
	expectEvent(t, without, watch.Added, last)
}

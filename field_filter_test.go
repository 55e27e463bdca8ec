package watchcache_test

import (
	"testing"

	"github.com/watchcache/watchcache"
)

// Section I: filters, deletions, previous values.

func TestFieldI1ADeletionHasItsOwnRevisionAndTheLastValue(t *testing.T) {
	c := mirror(t, options{}, 4, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	for revision, text := range map[uint64]string{5: "a=1"} {
		apply(t, c, revision, text)
	}
	apply(t, c, 6, "b=1")
	apply(t, c, 7, "c=1")
	apply(t, c, 8, "-a")
	wantPending(t, w, "+a=1@5 +b=1@6 +c=1@7 -a=1@8")
}

// TestFieldI2I4: one rule for the snapshot, history and the stream, and for every
// kind of selection.
func TestFieldI2I4SelectionIsOneRule(t *testing.T) {
	odd := func(_ string, n int) bool { return n%2 == 1 }
	parity := map[string]func(string, int) []string{"parity": func(_ string, n int) []string { return []string{[]string{"even", "odd"}[n%2]} }}
	for name, o := range map[string]watch{
		"filter":           {Filter: odd},
		"index":            {Index: watchcache.IndexValue{Name: "parity", Value: "odd"}},
		"filter and range": {Filter: odd, From: "a", To: "z"},
		"index and prefix": {Index: watchcache.IndexValue{Name: "parity", Value: "odd"}, Prefix: "k"},
		"index and filter": {Index: watchcache.IndexValue{Name: "parity", Value: "odd"}, Filter: odd},
	} {
		t.Run(name, func(t *testing.T) {
			c := mirror(t, options{Indexes: parity}, 1, "kold=1 kother=2")
			live := mustWatch(t, c, o)
			wantPending(t, live, "+kold=1@1i synced@1")
			start := c.Position()
			apply(t, c, 2, "kx=2")  // not selected
			apply(t, c, 3, "kx=3")  // enters
			apply(t, c, 4, "kx=5")  // stays
			apply(t, c, 5, "kx=6")  // leaves
			apply(t, c, 6, "kx=8")  // still outside
			apply(t, c, 7, "-kx")   // gone, unseen
			apply(t, c, 8, "-kold") // gone, seen
			apply(t, c, 9, "kz=7 kother=4 kq=9")
			const want = "+kx=3@3 ~kx=5@4 <kx=6@5 -kold=1@8 +kz=7@9… +kq=9@9"
			wantPending(t, live, want)
			o.Start = watchcache.After(start)
			wantPending(t, mustWatch(t, c, o), want)
			o.Start = watchcache.FromState()
			wantPending(t, mustWatch(t, c, o), "+kq=9@9i +kz=7@9i synced@9")
		})
	}
}

func TestFieldI5AKeyThatIsNotThereYetStaysWatched(t *testing.T) {
	c := newCache(t, options{})
	w := mustWatch(t, c, watch{Key: "foo"})
	wantPending(t, w, "synced@0")
	apply(t, c, 0, "bar=1")
	apply(t, c, 0, "foo=1")
	wantPending(t, w, "+foo=1@2")
}

func TestFieldI8WaitIsLevelTriggered(t *testing.T) {
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	c := newCache(t, options{})
	for range 10 {
		apply(t, c, 0, "p/a=1")
	}
	w := mustWatch(t, c, watch{Start: watchcache.AfterRevision(0), Prefix: "p/"})
	for range 3 {
		w.TryNext()
	}
	if !closed(w.Wait()) {
		t.Error("three of ten were taken: Wait is open")
	}
	pending(t, w)
	wait := w.Wait()
	if closed(wait) {
		t.Error("everything was taken: Wait is closed")
	}
	apply(t, c, 0, "elsewhere=1")
	if closed(wait) || closed(w.Wait()) {
		t.Error("another's event closed Wait")
	}
	apply(t, c, 0, "-p/a") // the last key of the prefix
	if !closed(wait) || !closed(w.Wait()) {
		t.Error("there is a deletion to take: Wait is open")
	}
	pending(t, w)
	wait = w.Wait()
	w.Stop()
	if !closed(wait) || !closed(w.Wait()) {
		t.Error("the watcher has ended: Wait is open")
	}
}

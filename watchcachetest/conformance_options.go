package watchcachetest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// What the options of a watch promise beyond its selection.

// testCoalesce has consumers join what they have before them: one that keeps up, and
// one that stops until everything is written.
func testCoalesce[T any](t testing.TB, start starter[T]) {
	r := newTrial(t, start, watchcache.Options[T]{})
	if !r.has("Coalesce") {
		return
	}
	coalesce := watchcache.WatchOptions[string]{Coalesce: true}
	r.commit(0)
	lively := r.follow("joins, and keeps up", coalesce, watchcache.Position{}, nil)
	paused := r.pausing("joins, and pauses", coalesce)
	if !paused.hasPaused() {
		return
	}
	for n := range 61 { // the last one puts: an event that tells that all was taken
		r.commit(n)
		if n%20 == 0 {
			lively.await()
		}
	}
	close(paused.resume)
	r.finish(lively, paused)
}

// testBookmarks waits for bookmarks at the head: for a consumer that selects
// everything, and for one that has nothing else to take.
func testBookmarks[T any](t testing.TB, start starter[T]) {
	r := newTrial(t, start, watchcache.Options[T]{})
	if !r.has("Bookmarks") {
		return
	}
	every := 5 * time.Millisecond
	all := []*consumer[T]{
		r.follow("bookmarks among everything", watchcache.WatchOptions[string]{Bookmarks: every}, watchcache.Position{}, nil),
		r.follow("bookmarks among nothing", watchcache.WatchOptions[string]{Prefix: "green/", Bookmarks: every}, watchcache.Position{},
			func(key, _ string) bool { return key >= "green/" && key < "green0" }),
	}
	for n := range 40 {
		r.commit(n)
		if n%10 != 9 {
			continue
		}
		at := r.caughtUp()
		for _, c := range all {
			if !c.until(func() bool { return c.bookmark >= at.Revision }) {
				t.Errorf("%s: no bookmark at %v came; the last was at %d", c.name, at, c.bookmark)
				return
			}
		}
	}
	r.finish(all...)
}

// testAtLeast wants a state that is as fresh as what was just written, before anybody
// has waited for the cache to have it; and one that is fresher than there is.
func testAtLeast[T any](t testing.TB, start starter[T]) {
	r := newTrial(t, start, watchcache.Options[T]{})
	if !r.has("AtLeast") {
		return
	}
	var all []*consumer[T]
	for n := range 20 {
		r.commit(n)
		fresh := r.newest()
		c := r.follow("as fresh as what was written", watchcache.WatchOptions[string]{AtLeast: fresh}, watchcache.Position{}, nil)
		if !c.until(func() bool { return c.synced }) {
			t.Errorf("%s: no Synced came", c.name)
		}
		r.mu.Lock()
		if c.synced && c.began < fresh {
			t.Errorf("%s: the state is of revision %d, want %d at least", c.name, c.began, fresh)
		}
		r.mu.Unlock()
		all = append(all, c)
	}
	never := watchcache.WatchOptions[string]{AtLeast: math.MaxUint64, AtLeastWait: 10 * time.Millisecond}
	if err := r.reason(r.ctx, never); !errors.Is(err, watchcache.ErrTimeout) {
		t.Errorf("a watch of a state that is fresher than there is: %v, want ErrTimeout", err)
	}
	r.finish(all...)
}

// testDeadline has streams end at a time, of which all that came before is right.
func testDeadline[T any](t testing.TB, start starter[T]) {
	r := newTrial(t, start, watchcache.Options[T]{})
	if !r.has("Deadline") {
		return
	}
	r.commit(0)
	r.caughtUp()
	opts := watchcache.WatchOptions[string]{Deadline: time.Now().Add(50 * time.Millisecond)}
	asleep := r.follow("asleep at its deadline", opts, watchcache.Position{}, nil)
	opts.Deadline = time.Now().Add(-time.Hour)
	past := r.follow("of a deadline that is over", opts, watchcache.Position{}, nil)
	past.endedWith(watchcache.ErrDeadline)
	asleep.endedWith(watchcache.ErrDeadline)
	r.commit(1)
	r.finish()
}

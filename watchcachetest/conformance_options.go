package watchcachetest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/watchcache/watchcache"
)

// What the options of a watch promise beyond its selection.

// testCoalesce has consumers join what they have before them: one that keeps up, and
// one that stops until everything is written.
func testCoalesce[T any](r *trial[T]) {
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
func testBookmarks[T any](r *trial[T]) {
	every := 5 * time.Millisecond
	quiet := nothing.opts
	quiet.Bookmarks = every
	all := []*consumer[T]{
		r.follow("bookmarks among everything", watchcache.WatchOptions[string]{Bookmarks: every}, watchcache.Position{}, nil),
		r.follow("bookmarks among nothing", quiet, watchcache.Position{}, nothing.selects),
	}
	for n := range 40 {
		r.commit(n)
		if n%10 != 9 {
			continue
		}
		at := r.caughtUp()
		for _, c := range all {
			if !c.until(fmt.Sprintf("no bookmark at %v came", at), func() bool { return c.bookmark >= at.Revision }) {
				return
			}
		}
	}
	r.finish(all...)
}

// testAtLeast wants a state that is as fresh as what was just written, before anybody
// has waited for the cache to have it; and one that is fresher than there is.
func testAtLeast[T any](r *trial[T]) {
	var all []*consumer[T]
	for n := range 20 {
		r.commit(n)
		fresh := r.newest()
		c := r.follow("as fresh as what was written", watchcache.WatchOptions[string]{AtLeast: fresh}, watchcache.Position{}, nil)
		c.until("no Synced came", func() bool { return c.synced })
		r.mu.Lock()
		if c.synced && c.began < fresh {
			r.Errorf("%s: the state is of revision %d, want %d at least", c.name, c.began, fresh)
		}
		r.mu.Unlock()
		all = append(all, c)
	}
	never := watchcache.WatchOptions[string]{AtLeast: math.MaxUint64, AtLeastWait: 10 * time.Millisecond}
	if err := r.reason(r.ctx, never); !errors.Is(err, watchcache.ErrTimeout) {
		r.Errorf("a watch of a state that is fresher than there is: %v, want ErrTimeout", err)
	}
	r.finish(all...)
}

// testDeadline has streams end at a time, of which all that came before is right.
func testDeadline[T any](r *trial[T]) {
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

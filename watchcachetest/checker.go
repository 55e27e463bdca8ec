package watchcachetest

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/watchcache/watchcache"
)

// Checker compares what watchers took with what was written, and says which
// promise of the contract was broken: lines 1 to 6, 13 and 14 of the comment of
// package watchcache, and 12 where [Writer] can see it.
//
// It is told what was written by [Writer], by [Checker.Source], or by hand with
// Began, Replaced, Committed and Progressed; and what each watcher took through
// [Watched]. It only notes what it is told, and compares when it is asked: Err
// and Verify are for when writers and watchers rest. So it does not matter which
// side tells first.
//
// All methods may be called concurrently. Commits must be told in their order.
type Checker[T any] struct {
	mu        sync.Mutex
	timeline  timeline[T]
	feed      *Violation // the writing side's first
	watched   []*Watched[T]
	snapshots []shown[T] // not compared yet
	wrong     error      // the first of a snapshot
}

// shown is what a snapshot shows.
type shown[T any] struct {
	at    watchcache.Position
	items iter.Seq[watchcache.Item[T]]
}

// NewChecker returns a checker for a cache with these options. It heeds Equal,
// SameIdentity, Publish and Relist; the others do not matter. Publish is called
// once more for each change: it must be pure, as the cache demands anyway. With
// it, selections are asked about published objects; the cache's indexes are not.
//
// Objects are compared by Equal, or else by [reflect.DeepEqual].
func NewChecker[T any](opts watchcache.Options[T]) *Checker[T] {
	return &Checker[T]{timeline: timeline[T]{opts: opts}}
}

// Began tells the state of a cache that was written to before. The first that a
// checker is told is this, or Replaced.
func (c *Checker[T]) Began(state *watchcache.Snapshot[T]) {
	items := make(map[string]watchcache.Item[T], state.Len())
	for item := range state.All() {
		items[item.Key] = item
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeline.begin(state.Position(), items)
}

// Replaced tells that a listing has become the state. at is the cache's position
// after it, which names the epoch as watchers know it.
func (c *Checker[T]) Replaced(at watchcache.Position, items ...watchcache.Item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(c.timeline.replace(at, items))
}

// Committed tells that changes were committed together. at is the cache's
// position after them.
func (c *Checker[T]) Committed(at watchcache.Position, changes ...watchcache.Change[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(c.timeline.commit(at, changes))
}

// Progressed tells that the cache's position moved without a change.
func (c *Checker[T]) Progressed(at watchcache.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(c.timeline.progress(at))
}

// note keeps the first violation of the writing side. The caller holds mu.
func (c *Checker[T]) note(wrong *Violation) {
	if wrong != nil && c.feed == nil {
		c.feed = wrong
	}
}

// Snapshot has a snapshot compared with what was written: every item, its object
// and its revision.
func (c *Checker[T]) Snapshot(snapshot *watchcache.Snapshot[T]) {
	c.compareWith(snapshot.Position(), snapshot.All())
}

func (c *Checker[T]) compareWith(at watchcache.Position, items iter.Seq[watchcache.Item[T]]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshots = append(c.snapshots, shown[T]{at, items})
}

// Watcher begins to check one watcher. selects says what it selects, by key,
// prefix, range, index and filter together, and must be pure; nil is everything.
// after is the position that it starts after; the zero Position is for a watcher
// that starts with the state. For one that starts now or after a revision,
// Watcher.Position, called right after Watch, tells it. Call it before Watch, or
// before the state is listed anew after Watch: it notes how often that was.
func (c *Checker[T]) Watcher(name string, selects func(key string, object T) bool, after watchcache.Position) *Watched[T] {
	if selects == nil {
		selects = func(string, T) bool { return true }
	}
	w := &Watched[T]{check: c, name: name, replays: []replay[T]{{timeline: &c.timeline, selects: selects}}}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.tell(record[T]{kind: recordStart, at: after})
	c.watched = append(c.watched, w)
	return w
}

// Err compares all that was told so far, and returns nil, or every watcher's
// first [Violation], joined.
//
// A watcher that took what the checker was not told is a violation too, but one
// that heals: call it when the writers rest.
func (c *Checker[T]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	unknown := c.compareSnapshots()
	errs := []error{c.noted(), unknown, c.wrong}
	for _, w := range c.watched {
		if wrong := w.run(); wrong != nil {
			errs = append(errs, wrong)
		}
	}
	return errors.Join(errs...)
}

// Verify fails the test if Err returns an error.
func (c *Checker[T]) Verify(t testing.TB) {
	t.Helper()
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

// noted is the writing side's violation as an error. The caller holds mu.
func (c *Checker[T]) noted() error {
	if c.feed == nil {
		return nil
	}
	return c.feed
}

// compareSnapshots compares the snapshots that were not compared yet. It returns
// a violation for those that show what the checker was not told of.
func (c *Checker[T]) compareSnapshots() error {
	var unknown []error
	var later []shown[T]
	for _, s := range c.snapshots {
		v, known := c.compareSnapshot(s)
		switch {
		case v == nil:
		case !known:
			later, unknown = append(later, s), append(unknown, v)
		case c.wrong == nil:
			c.wrong = v
		}
	}
	c.snapshots = later
	return errors.Join(unknown...)
}

func (c *Checker[T]) compareSnapshot(s shown[T]) (wrong *Violation, known bool) {
	at := s.at
	var events []watchcache.Event[T]
	for item := range s.items {
		events = append(events, watchcache.Event[T]{Key: item.Key, Object: item.Object, Revision: item.Revision})
	}
	for _, e := range slices.Backward(c.timeline.eras) {
		if e.base.Epoch != at.Epoch || before(at, e.base) || before(e.head, at) {
			continue
		}
		everything := func(string, T) bool { return true }
		expected, got := c.timeline.compareState(events, e.stateAt(at), everything)
		if expected == "" {
			return nil, true
		}
		return &Violation{Contract: 3, Why: fmt.Sprintf("the snapshot at %v is not the state there", at), Expected: expected, Got: got}, true
	}
	return &Violation{Contract: 3, Why: "a snapshot is at a position that nobody wrote",
		Expected: c.timeline.reach(), Got: fmt.Sprintf("a snapshot at %v", at)}, false
}

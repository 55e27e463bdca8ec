package watchcachetest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

type (
	cache        = watchcache.Cache[int]
	options      = watchcache.Options[int]
	watchOptions = watchcache.WatchOptions[int]
)

func newCache(t *testing.T, opts options) *cache {
	t.Helper()
	c, err := watchcache.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func listing(items ...item) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for _, it := range items {
			if !yield(it, nil) {
				return
			}
		}
	}
}

// decade is an index: an object is found by its tens.
func decade(_ string, object int) []string { return []string{fmt.Sprint(object / 10)} }

// kinds are watchers of every kind, by what they take how.
var kinds = []struct {
	name     string
	opts     watchOptions
	selects  func(key string, object int) bool
	coalesce bool
	take     func(*consumer) // nil: one event at a time, as many as a slow consumer takes in a turn
}{
	{name: "all", take: follows},
	{name: "now", opts: watchOptions{Start: watchcache.FromNow()}, take: follows},
	{name: "key", opts: watchOptions{Key: "k3"}, selects: func(key string, _ int) bool { return key == "k3" }, take: follows},
	{name: "prefix", opts: watchOptions{Prefix: "k1"}, selects: func(key string, _ int) bool { return key[:2] == "k1" }, take: follows},
	{name: "range", opts: watchOptions{From: "k2", To: "k5"}, selects: func(key string, _ int) bool { return "k2" <= key && key < "k5" }, take: follows},
	{name: "index", opts: watchOptions{Index: watchcache.IndexValue{Name: "decade", Value: "1"}}, selects: func(_ string, object int) bool { return object/10 == 1 }, take: follows},
	{name: "filter", opts: watchOptions{Filter: even}, selects: even, take: follows},
	{name: "index and filter", opts: watchOptions{Index: watchcache.IndexValue{Name: "decade", Value: "2"}, Filter: even},
		selects: func(key string, object int) bool { return object/10 == 2 && even(key, object) }, take: follows},
	{name: "bookmarks", opts: watchOptions{Bookmarks: time.Second, Key: "k7"}, selects: func(key string, _ int) bool { return key == "k7" }, take: follows},
	{name: "batches", take: batches},
	{name: "channel", take: receives},
	{name: "coalesced", opts: watchOptions{Coalesce: true}, coalesce: true},
	{name: "coalesced filter", opts: watchOptions{Coalesce: true, Filter: even, Bookmarks: time.Second}, selects: even, coalesce: true},
	{name: "slow, evicted", opts: watchOptions{Stall: watchcache.Evict{}}},
	{name: "slow, resyncs", opts: watchOptions{Stall: watchcache.Resync{}}},
	{name: "slow, resyncs, filter", opts: watchOptions{Stall: watchcache.Resync{}, Filter: even, Bookmarks: time.Second}, selects: even},
	{name: "has a deadline", opts: watchOptions{DeadlineLead: time.Second}, take: follows},
}

// consumer is a watcher's consumer that never gives up.
type consumer struct {
	t       *testing.T
	cache   *cache
	watched *watched
	watcher *watchcache.Watcher[int]
	kind    int
	seen    map[string]int // what happened to all of them
}

// watch starts a watcher: where the last one was if that can be, or else with the
// state.
func (c *consumer) watch(check *watchcachetest.Checker[int], resume position) {
	kind := kinds[c.kind]
	opts := kind.opts
	if opts.DeadlineLead > 0 {
		opts.Deadline = time.Now().Add(3 * time.Second)
	}
	if !resume.IsZero() {
		opts.Start = watchcache.After(resume)
	}
	w, err := c.cache.Watch(c.t.Context(), opts)
	if err != nil {
		if c.watched.Refused(resume, err); !errors.Is(err, watchcache.ErrExpired) {
			c.t.Fatalf("%s: want to start or to be refused as expired, got %v", kind.name, err)
		}
		c.seen["refused"]++
		c.watch(check, position{})
		return
	}
	after, _ := w.Position()
	if c.watched == nil {
		c.watched = check.Watcher(kind.name, kind.selects, after)
		if kind.coalesce {
			c.watched.Coalesced()
		}
	} else {
		c.watched.Resumed(after)
	}
	c.seen[map[bool]string{true: "state", false: "position"}[after.IsZero()]]++
	c.watcher = w
	if kind.take != nil {
		kind.take(c)
	}
}

func follows(c *consumer) { c.watched.Follow(c.t, c.watcher) }

func batches(c *consumer) {
	w, watched := c.watcher, c.watched
	go func() {
		for batch, err := range w.Batches() {
			for _, ev := range batch.Events {
				watched.Took(ev)
			}
			if err != nil {
				watched.Ended(err)
				return
			}
			watched.Position(w.Position())
		}
	}()
}

func receives(c *consumer) {
	w, watched := c.watcher, c.watched
	go func() {
		for ev := range w.Channel(3) {
			watched.Took(ev)
		}
		watched.Ended(w.Err())
	}()
}

// turn lets a slow consumer take some, and starts anew what has ended.
func (c *consumer) turn(check *watchcachetest.Checker[int], most int) {
	err := c.watcher.Err()
	if kinds[c.kind].take == nil {
		var ev event
		for ok := true; ok && most > 0; most-- {
			if ev, ok, err = c.watcher.TryNext(); ok {
				c.watched.Took(ev)
				c.watched.Position(c.watcher.Position())
			}
			if ev.Type == watchcache.Reset {
				c.seen["reset"]++
			}
		}
		if err != nil {
			c.watched.Ended(err)
		}
	}
	for what, sentinel := range map[string]error{"lagged": watchcache.ErrLagged, "expired": watchcache.ErrExpired, "deadline": watchcache.ErrDeadline} {
		if errors.Is(err, sentinel) {
			c.seen[what]++
		}
	}
	if err != nil {
		at, _ := c.watcher.Position()
		synctest.Wait()
		c.watch(check, at)
	}
}

// writes makes one random write, and reports what kind it was.
func writes(t *testing.T, random *rand.Rand, c *cache, w *watchcachetest.Writer[int], epochs *int) string {
	key := func() string { return fmt.Sprintf("k%d", random.IntN(20)) }
	some := func() []change {
		var changes []change
		for range 1 + random.IntN(5) {
			changes = append(changes, change{Key: key(), Object: random.IntN(40), Delete: random.IntN(4) == 0})
		}
		return changes
	}
	relist := func(to position) error {
		var items []item
		for it := range c.Snapshot().All() {
			switch n := random.IntN(8); {
			case n == 0, it.Key == "new": // gone, or listed below
			case n == 1:
				items = append(items, item{Key: it.Key, Object: it.Object + 1, Revision: to.Revision - uint64(random.IntN(3))})
			case n == 2:
				items = append(items, item{Key: it.Key, Object: it.Object, Revision: it.Revision + 1})
			default:
				items = append(items, it)
			}
		}
		return w.Replace(to, listing(append(items, item{Key: "new", Object: random.IntN(40)})...))
	}
	head := c.Position()
	what, err := "", error(nil)
	switch n := random.IntN(1000); {
	case n < 400:
		what = "commit"
		_, err = w.Apply(watchcache.Commit[int]{Revision: head.Revision + 1 + uint64(random.IntN(2)), Changes: some()})
	case n < 500:
		what = "part"
		_, err = w.Apply(watchcache.Commit[int]{Continues: true, Revision: head.Revision, Changes: some()})
	case n < 600:
		what = "progress"
		err = w.Progress(head.Revision + uint64(random.IntN(3)))
	case n < 650:
		what = "refused"
		if _, refused := w.Apply(watchcache.Commit[int]{Revision: head.Revision, Changes: some()}); !errors.Is(refused, watchcache.ErrRevisionOrder) {
			t.Errorf("want ErrRevisionOrder for a commit at the head, got %v", refused)
		}
		if refused := w.Replace(position{Revision: head.Revision + 9}, failed); !errors.Is(refused, errBroken) {
			t.Errorf("want a listing's own error, got %v", refused)
		}
	case n < 658:
		what = "relist"
		err = relist(position{Revision: head.Revision + 5})
	case n < 661:
		what = "epoch"
		*epochs++
		err = relist(position{Epoch: fmt.Sprintf("era%d", *epochs), Revision: head.Revision + 10})
	case n < 664:
		what = "restored"
		err = relist(position{Revision: head.Revision - 1})
	case n < 668:
		what = "changed at the head"
		err = relist(position{Revision: head.Revision})
	default:
		what = "commit"
		_, err = w.Apply(watchcache.Commit[int]{Revision: head.Revision + 1, Changes: []change{{Key: key(), Object: random.IntN(40)}}})
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return what
}

var errBroken = errors.New("broken")

// failed is a listing that fails half-way.
func failed(yield func(item, error) bool) {
	if yield(item{Key: "a", Object: 7}, nil) {
		yield(item{}, errBroken)
	}
}

func TestCheckerPassesARealCache(t *testing.T) {
	// Indexes see what was written, so that what is published keeps its tens.
	stamp := func(_ uint64, change change, prev int) int {
		if change.Delete {
			return prev + 1000
		}
		return change.Object/10*10 + (change.Object+3)%10
	}
	for _, row := range []struct {
		name string
		opts options
	}{
		{"as it is", options{}},
		{"relists expire", options{Relist: watchcache.RelistExpire}},
		{"identities", options{SameIdentity: func(a, b int) bool { return a%3 == b%3 }}},
		{"published", options{Publish: stamp}},
		{"cloned, equal by tens", options{Clone: func(object int) int { return object }, Equal: func(a, b int) bool { return a == b || a/10 == b/10 && a > 30 }}},
	} {
		t.Run(row.name, func(t *testing.T) {
			wrote, seen := make(map[string]int), make(map[string]int)
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) { soak(t, row.opts, seed, wrote, seen) })
			}
			for _, what := range []string{"commit", "part", "progress", "refused", "relist", "epoch", "restored", "changed at the head"} {
				if wrote[what] == 0 {
					t.Errorf("want every kind of write: %q is missing in %v", what, wrote)
				}
			}
			for _, what := range []string{"state", "position", "refused", "reset", "lagged", "expired", "deadline"} {
				if seen[what] == 0 {
					t.Errorf("want everything to happen to watchers: %q is missing in %v", what, seen)
				}
			}
		})
	}
}

// soak has one cache written to and watched by every kind of watcher. It counts
// what it wrote, and what its watchers have seen.
func soak(t *testing.T, opts options, seed uint64, wrote, seen map[string]int) {
	random := rand.New(rand.NewPCG(seed, 1))
	opts.Mirror, opts.Epoch, opts.Capacity = true, "era0", 64
	opts.Indexes = map[string]func(string, int) []string{"decade": decade}
	c := newCache(t, opts)
	check := watchcachetest.NewChecker(opts)
	w := watchcachetest.NewWriter(check, c)
	if err := w.Replace(position{Revision: 10}, listing(item{Key: "k1", Object: 11}, item{Key: "k2", Object: 12, Revision: 4})); err != nil {
		t.Fatal(err)
	}
	var consumers []*consumer
	for kind := range kinds {
		consumer := &consumer{t: t, cache: c, kind: kind, seen: seen}
		consumer.watch(check, position{})
		consumers = append(consumers, consumer)
	}
	epochs := 0
	for range 600 {
		wrote[writes(t, random, c, w, &epochs)]++
		if random.IntN(20) == 0 {
			time.Sleep(time.Second) // in a bubble: bookmarks and deadlines
		}
		synctest.Wait()
		for _, consumer := range consumers {
			consumer.turn(check, random.IntN(3))
		}
		if random.IntN(50) == 0 {
			check.Snapshot(c.Snapshot())
			oldest := c.Oldest().Revision
			if past, err := c.SnapshotAt(oldest + random.Uint64N(c.Position().Revision-oldest+1)); err == nil {
				check.Snapshot(past)
			}
		}
	}
	for _, consumer := range consumers {
		for range 3 { // the first turn may end it, and what it then starts has a state to take
			consumer.turn(check, 10_000)
		}
	}
	synctest.Wait()
	for _, consumer := range consumers {
		consumer.watched.CaughtUp(c.Position())
	}
	if err := check.Err(); err != nil {
		t.Errorf("seed %d: want a real cache to keep the contract, got: %v", seed, err)
	}
	c.Close()
	synctest.Wait()
	check.Verify(t)
}

// TestCheckerTellsStatesOfTwoNumberingsApart: a consumer that tells no position, as
// of a channel, took an empty state before another numbering had the same.
func TestCheckerTellsStatesOfTwoNumberingsApart(t *testing.T) {
	check := watchcachetest.NewChecker(options{})
	check.Replaced(at(3))
	w := check.Watcher("late", nil, position{})
	check.Committed(at(4), change{Key: "a", Object: 1})
	check.Replaced(foreign(3))
	w.Took(event{Type: watchcache.Synced, Revision: 3})
	w.Took(event{Type: watchcache.Added, Key: "a", Object: 1, Revision: 4})
	w.Ended(&watchcache.ExpiredError{Requested: at(4), Oldest: foreign(3)})
	check.Verify(t)
}

// TestCheckerKnowsPartsWithoutAnEvent: a continuation that deletes what is not there
// moves the position.
func TestCheckerKnowsPartsWithoutAnEvent(t *testing.T) {
	part := func(n uint32) position { return position{Epoch: "e", Revision: 4, Part: n} }
	check := watchcachetest.NewChecker(options{})
	check.Replaced(at(3))
	old := check.Watcher("old", nil, position{})
	old.Took(event{Type: watchcache.Synced, Revision: 3})
	old.Position(at(3), true)
	check.Progressed(at(4))
	check.Committed(part(1), change{Key: "a", Delete: true})
	now := check.Watcher("new", nil, position{})
	now.Took(event{Type: watchcache.Synced, Revision: 4})
	now.Position(part(1), true)
	since := check.Watcher("since", nil, at(4))
	since.Took(event{Type: watchcache.Bookmark, Revision: 4})
	since.Position(part(1), true)
	check.Committed(part(2), change{Key: "a", Object: 1})
	for _, w := range []*watched{old, now, since} {
		w.Took(event{Type: watchcache.Added, Key: "a", Object: 1, Revision: 4})
		w.Position(part(2), true)
	}
	check.Verify(t)
}

func TestCheckerPassesAStartInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Epoch: "e"})
		check := watchcachetest.NewChecker(options{})
		writer := watchcachetest.NewWriter(check, c)
		w, err := c.Watch(context.Background(), watchOptions{Start: watchcache.AfterRevision(2).AllowFuture()})
		if err != nil {
			t.Fatal(err)
		}
		ahead := check.Watcher("ahead", nil, at(2))
		f := ahead.Follow(t, w)
		check.Verify(t) // before what it is ahead by was written
		for range 4 {
			if _, err := writer.Put("a", 1); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		ahead.CaughtUp(c.Position())
		check.Verify(t)
		if n := len(f.Events()); n != 2 {
			t.Errorf("want the 2 events above 2, got %d", n)
		}
		early := check.Watcher("early", nil, at(2))
		early.Took(event{Type: watchcache.Modified, Key: "a", Object: 1, Prev: 1, Revision: 2})
		violated(t, check, "early", 1, "at or before e:2, where it started", `Modified "a" at 3`, `Modified "a" at 2`)
	})
}

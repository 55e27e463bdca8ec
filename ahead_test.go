package watchcache

// Clients that are ahead of the cache: AllowFuture.

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

// A client that is ahead lacks nothing while the cache catches up with it: neither
// lag nor idleness nor overrun begin before its position is passed.
func TestClientThatIsAheadDoesNotLag(t *testing.T) {
	limits := StallLimits{InitialIdle: NoLimit, StreamIdle: time.Minute, Lag: 5}
	for name, opts := range map[string]WatchOptions[int]{
		"everything":          {Stall: Evict{limits}},
		"everything, resyncs": {Stall: Resync{limits}},
		"a key":               {Stall: Evict{limits}, Key: "k0"},
		"a prefix":            {Stall: Resync{limits}, Prefix: "k"},
		"filtered":            {Stall: Evict{limits}, Filter: func(string, int) bool { return true }},
		"coalesced":           {Stall: Resync{limits}, Coalesce: true},
		"bookmarks":           {Stall: Evict{limits}, Bookmarks: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := New(Options[int]{Capacity: 4, Epoch: "e"})
				c.Put("k0", 1)
				opts.Start = After(Position{Epoch: "e", Revision: 100}).AllowFuture()
				w, err := c.Watch(context.Background(), opts)
				if err != nil {
					t.Fatal(err)
				}
				looks := func(when string) {
					t.Helper()
					for info := range c.Watchers() {
						if info.Lag != 0 {
							t.Errorf("%s: a lag of %d, want none", when, info.Lag)
						}
					}
					if ev, ok, err := w.TryNext(); ok || err != nil {
						t.Fatalf("%s: %+v, %v, %v; want nothing", when, ev, ok, err)
					}
				}
				for c.Position().Revision < 50 {
					c.Put("k0", 1)
				}
				looks("after 50 revisions")
				for c.Position().Revision < 99 {
					c.Put("k0", 1)
				}
				time.Sleep(time.Hour)
				looks("after an hour")
				c.Put("k0", 100)
				looks("at its position")
				c.Put("k0", 101)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if ev, err := w.Next(ctx); err != nil || ev.Revision != 101 || ev.Prev != 100 {
					t.Fatalf("%+v, %v; want the change at 101", ev, err)
				}
				for range 8 { // from now on it may be overrun
					c.Put("k0", 1)
				}
				ev, ok, err := w.TryNext()
				if _, resyncs := opts.Stall.(Resync); resyncs && ev.Type != Reset {
					t.Errorf("overrun: %+v, %v, %v; want a Reset", ev, ok, err)
				} else if !resyncs && !errors.Is(err, ErrLagged) {
					t.Errorf("overrun: %+v, %v, %v; want ErrLagged", ev, ok, err)
				}
				c.Close() // not deferred: after a panic in a commit it would wait for ever
			})
		})
	}
}

// The commit that passes the client's position is the first that it is behind by.
func TestCommitThatMeetsAClientCountsAsItsLag(t *testing.T) {
	for _, key := range []string{"", "a"} {
		c, _ := New(Options[int]{Epoch: "e", Stall: Evict{StallLimits{Lag: 3}}})
		ahead := Position{Epoch: "e", Revision: 5}
		w, _ := c.Watch(context.Background(), WatchOptions[int]{Key: key, Start: After(ahead).AllowFuture()})
		c.Apply(Commit[int]{Revision: 5, Changes: puts(9, 0)})
		if err := w.Err(); err != nil {
			t.Errorf("key %q: %v by a commit at its own position", key, err)
		}
		c.Apply(Commit[int]{Revision: 6, Changes: []Change[int]{{Key: "a"}, {Key: "a"}, {Key: "a"}}})
		if err := w.Err(); !errors.Is(err, ErrLagged) {
			t.Errorf("key %q: %v after three events, want ErrLagged at a limit of 3", key, err)
		}
		c.Close()
	}
}

// Progress and parts pass positions too, and whoever ends is not kept.
func TestClientsThatAreAheadAreMetInAnyWay(t *testing.T) {
	c, _ := New(Options[int]{Epoch: "e"})
	defer c.Close()
	c.Apply(Commit[int]{Revision: 10, Changes: puts(1, 0)})
	watch := func(revision uint64, part uint32) *Watcher[int] {
		w, err := c.Watch(context.Background(), WatchOptions[int]{Start: After(Position{Epoch: "e", Revision: revision, Part: part}).AllowFuture()})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	third, first, passed, stopped := watch(10, 3), watch(10, 1), watch(12, 0), watch(15, 0)
	next := func(when string, w *Watcher[int], want Position) {
		t.Helper()
		ev, ok, err := w.TryNext()
		if want == (Position{}) {
			if ok || err != nil {
				t.Errorf("%s: %+v, %v, %v; want nothing", when, ev, ok, err)
			}
		} else if at, _ := w.Position(); !ok || at != want {
			t.Errorf("%s: %+v, %v, %v at %v; want an event at %v", when, ev, ok, err, at, want)
		}
	}
	for range 2 {
		c.Apply(Commit[int]{Continues: true, Changes: puts(1, 0)})
	}
	next("at 10.2, who was at 10.1", first, Position{Epoch: "e", Revision: 10, Part: 2})
	next("at 10.2, who is at 10.3", third, Position{})
	c.Progress(13)
	c.Progress(14)
	next("by progress to 14, who was at 12", passed, Position{})
	if stopped.Stop(); c.ahead.Len() != 0 {
		t.Errorf("%d are ahead, want none: one was stopped, the others were met", c.ahead.Len())
	}
	c.Put("a", 1)
	for when, w := range map[string]*Watcher[int]{"third": third, "passed": passed} {
		next(when, w, Position{Epoch: "e", Revision: 15})
	}
}

func TestWatcherAheadIsExpiredByAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{Mirror: true, Epoch: "e"})
		defer c.Close()
		list := func(m map[string]int) func(func(Item[int], error) bool) {
			return func(yield func(Item[int], error) bool) {
				for k, v := range maps.All(m) {
					if !yield(Item[int]{Key: k, Object: v}, nil) {
						return
					}
				}
			}
		}
		c.Replace(Position{Revision: 10}, list(map[string]int{"a": 1}))
		w, err := c.Watch(context.Background(), WatchOptions[int]{Start: After(Position{Epoch: "e", Revision: 15}).AllowFuture()})
		if err != nil {
			t.Fatal(err)
		}
		c.Replace(Position{Revision: 20}, list(map[string]int{"a": 1}))
		if err := w.Err(); !errors.Is(err, ErrExpired) {
			t.Errorf("a watcher at 15, in the hole (10, 20): %v, want ErrExpired", err)
		}
	})
}

func TestWatcherAheadByAPartIsExpiredByAHole(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true, Epoch: "e"})
	defer c.Close()
	none := func(func(Item[int], error) bool) {}
	c.Replace(Position{Revision: 4}, none)
	w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: After(Position{Epoch: "e", Revision: 4, Part: 1}).AllowFuture()})
	c.Replace(Position{Revision: 5}, none)
	if err := w.Err(); !errors.Is(err, ErrExpired) {
		t.Errorf("a watcher at e:4.1, in the hole (e:4, e:5): %v, want ErrExpired", err)
	}
}

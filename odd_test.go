package watchcache_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// Odd sizes, and the ends of numbers.

// TestRevisionsToTheLast: the last revision there is, is one like any other; then
// no commit is possible, and everything else goes on.
func TestRevisionsToTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := options{Epoch: "e", FirstRevision: math.MaxUint64 - 9, Capacity: 4}
		c, check := newCache(t, opts), watchcachetest.NewChecker(opts)
		writer := watchcachetest.NewWriter(check, c)
		watched := check.Watcher("all", nil, watchcache.Position{})
		f := watched.Follow(t, mustWatch(t, c, watch{Bookmarks: time.Second}))
		for i := range 10 {
			if _, err := writer.Put("a", i); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if _, err := writer.Put("a", 10); !errors.Is(err, watchcache.ErrRevisionOrder) {
			t.Errorf("a commit after the last revision: %v", err)
		}
		if _, err := writer.Delete("a"); !errors.Is(err, watchcache.ErrRevisionOrder) {
			t.Errorf("a deletion after the last revision: %v", err)
		}
		if err := c.Replace(watchcache.Position{}, listing("a=9")); !errors.Is(err, watchcache.ErrRevisionOrder) {
			t.Errorf("a listing after the last revision: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		watched.CaughtUp(c.Position())
		for back := range uint64(4) {
			past, err := c.SnapshotAt(math.MaxUint64 - back)
			if err != nil {
				t.Fatal(err)
			}
			check.Snapshot(past)
			w := mustWatch(t, c, watch{Start: watchcache.AfterRevision(math.MaxUint64 - back)})
			if n := len(strings.Fields(pending(t, w))); (n > 0) != (back > 0) {
				t.Errorf("%d below the last: %d pending", back, n)
			}
			w.Stop()
		}
		check.Verify(t)
		if n := len(f.Events()); n < 11 {
			t.Errorf("%d events", n)
		}
		f.Stop()
		c.Close()
	})
}

// TestAnEmptyCacheForEver: nothing is there, nothing happens, and nothing grows.
func TestAnEmptyCacheForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Retention: time.Hour, Capacity: 1})
		w := mustWatch(t, c, watch{Bookmarks: time.Minute})
		wantPending(t, w, "synced@0")
		before := heap()
		time.Sleep(30 * 24 * time.Hour)
		synctest.Wait()
		if now := heap(); now > before+100_000 {
			t.Errorf("%d bytes after a month, %d before", now, before)
		}
		wantPending(t, w, "")
		for range c.Snapshot().All() {
			t.Error("an empty state has an object")
		}
		if s := c.Stats(); s.History != 0 || s.Objects != 0 || s.Position != s.Oldest {
			t.Errorf("%+v", s)
		}
		c.Close()
	})
}

// TestOneKeyForEver: a key that is rewritten and rewritten costs what one object
// and the history do.
func TestOneKeyForEver(t *testing.T) {
	c := newCache(t, options{Capacity: 100})
	for range 1000 {
		apply(t, c, 0, "a=1")
	}
	before := heap()
	for range atScale(400_000) {
		apply(t, c, 0, "a=1")
	}
	if now := heap(); now > before+100_000 {
		t.Errorf("%d bytes, %d before", now, before)
	}
	if s := c.Stats(); s.Objects != 1 || s.History != 100 {
		t.Errorf("%+v", s)
	}
}

// TestKeysOfAMegabyte: they are compared to their last byte, as keys, borders and
// prefixes, and kept once.
func TestKeysOfAMegabyte(t *testing.T) {
	const size, n = 1 << 20, 100
	c := newCache(t, options{})
	long := strings.Repeat("k", size)
	before := heap()
	for i := range n { // more than one leaf
		if _, err := c.Put(fmt.Sprintf("%s%03d", long, i), i); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > (n+n/2)*size {
		t.Errorf("%d bytes for %d keys of %d", grown, n, size)
	}
	if got := c.Snapshot().Count(long+"040", long+"060"); got != 20 {
		t.Errorf("%d keys of 20 in the range", got)
	}
	w := mustWatch(t, c, watch{Prefix: long + "07"})
	for i := range 11 {
		if ev, ok, err := w.TryNext(); err != nil || !ok || (ev.Type == watchcache.Synced) != (i == 10) || i < 10 && ev.Object != 70+i {
			t.Fatalf("event %d: %v of %d, %v, %v", i, ev.Type, ev.Object, ok, err)
		}
	}
	if _, err := c.Delete(long + "077"); err != nil {
		t.Fatal(err)
	}
	if ev, ok, err := w.TryNext(); err != nil || !ok || ev.Type != watchcache.Deleted || ev.Object != 77 {
		t.Errorf("%v of %d, %v, %v", ev.Type, ev.Object, ok, err)
	}
	w.Stop()
}

// TestObjectsOfAnySize: of no bytes, where all that there is are keys, and of four
// thousand, by value.
func TestObjectsOfAnySize(t *testing.T) {
	t.Run("0", func(t *testing.T) { odd(t, 300, func(int) struct{} { return struct{}{} }) })
	t.Run("4096", func(t *testing.T) {
		odd(t, 60, func(i int) (large [4096]byte) { large[0], large[4095] = byte(i), byte(i); return large })
	})
	t.Run("an interface", func(t *testing.T) {
		odd(t, 300, func(i int) any {
			if i%2 == 0 {
				return nil
			}
			return i
		})
	})
}

func odd[T comparable](t *testing.T, steps int, object func(int) T) {
	synctest.Test(t, func(t *testing.T) {
		opts := watchcache.Options[T]{Capacity: 64, Equal: func(a, b T) bool { return a == b }}
		c, err := watchcache.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		check := watchcachetest.NewChecker(opts)
		writer := watchcachetest.NewWriter(check, c)
		var all []*watchcachetest.Watched[T]
		for name, o := range map[string]watchcache.WatchOptions[T]{"plain": {}, "coalesced": {Coalesce: true}} {
			watched := check.Watcher(name, nil, watchcache.Position{})
			if o.Coalesce {
				watched.Coalesced()
			}
			w, err := c.Watch(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			watched.Follow(t, w)
			all = append(all, watched)
		}
		for i := range steps {
			key := fmt.Sprintf("%d", i%(steps/4))
			if i%5 == 4 {
				writer.Delete(key)
			} else {
				writer.Put(key, object(i))
			}
			if i%3 == 0 {
				synctest.Wait()
			}
			if i%20 == 19 {
				past, err := c.SnapshotAt(c.Position().Revision - 15)
				if err != nil {
					t.Fatal(err)
				}
				check.Snapshot(past)
			}
		}
		synctest.Wait()
		for _, w := range all {
			w.CaughtUp(c.Position())
		}
		check.Snapshot(c.Snapshot())
		check.Verify(t)
		c.Close()
	})
}

package watchcache_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
)

// Section D: the initial state, its end, and bookmarks.

func TestFieldD1D6SyncedComesAtOnceAlsoForNothing(t *testing.T) {
	c := mirror(t, options{}, 7, "a=1")
	for name, o := range map[string]watch{
		"key": {Key: "none"}, "prefix": {Prefix: "none"}, "range": {From: "x", To: "y"}, "filter": {Filter: func(string, int) bool { return false }},
	} {
		w := mustWatch(t, c, o)
		if got := pending(t, w); got != "synced@7" {
			t.Errorf("%s: took %q, want Synced at once", name, got)
		}
		select {
		case <-w.Synced():
		default:
			t.Errorf("%s: Synced is open after it was taken", name)
		}
		if w.Err() != nil {
			t.Errorf("%s: ended with %v, want it to go on", name, w.Err())
		}
	}
	empty := newCache(t, options{})
	wantPending(t, mustWatch(t, empty, watch{}), "synced@0")
}

func TestFieldD4AWatcherFinishesItsStateAndCatchesUp(t *testing.T) {
	c := newCache(t, options{})
	for i := range 100 {
		apply(t, c, 0, fmt.Sprintf("k%03d=1", i))
	}
	w := mustWatch(t, c, watch{})
	var got []string
	for range 100 { // a slow one: ten commits for each object that it takes
		ev, _, err := w.TryNext()
		if err != nil || !ev.Initial {
			t.Fatalf("took %v, %v", ev, err)
		}
		for range 10 {
			apply(t, c, 0, "hot=1")
		}
	}
	got = strings.Fields(pending(t, w))
	if got[0] != "synced@100" || len(got) != 1001 || got[1000] != "~hot=1@1100" {
		t.Errorf("after the state came %d events, from %s to %s", len(got), got[0], got[len(got)-1])
	}
}

func TestFieldD5D13SyncedIsItsOwnTypeAndComesOnce(t *testing.T) {
	c := mirror(t, options{}, 1, "a=1")
	w := mustWatch(t, c, watch{Filter: func(string, int) bool { return true }})
	c.RequestBookmarks() // during the initial phase: says nothing
	apply(t, c, 2, "b=2")
	c.RequestBookmarks()
	wantPending(t, w, "+a=1@1i synced@1 +b=2@2")
	c.RequestBookmarks()
	wantPending(t, w, "bookmark@2")
}

func TestFieldD7D8WhatCameBeforeSyncedIsTheState(t *testing.T) {
	c := newCache(t, options{Capacity: 1 << 17})
	for i := range 5466 {
		apply(t, c, 0, fmt.Sprintf("k%04d=1", i))
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	defer writer.Wait()
	defer close(stop)
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				apply(t, c, 0, fmt.Sprintf("k%04d=2 new%d=1 -k%04d", i%5466, i%100, (i+7)%5466))
			}
		}
	})
	for range 5 {
		w := mustWatch(t, c, watch{})
		state := map[string]int{}
		for ev, err := range w.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Type == watchcache.Synced {
				s, err := c.SnapshotAt(ev.Revision)
				if err != nil {
					t.Fatal(err)
				}
				if s.Len() != len(state) {
					t.Errorf("%d keys before Synced at %d, the state then had %d", len(state), ev.Revision, s.Len())
				}
				for i := range s.All() {
					if state[i.Key] != i.Object {
						t.Fatalf("%s is %d, the state at %d had %d", i.Key, state[i.Key], ev.Revision, i.Object)
					}
				}
				break
			}
			state[ev.Key] = ev.Object
		}
	}
}

func TestFieldD9D10NothingYetIsNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{})
		w := mustWatch(t, c, watch{Name: "d9"})
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ev, err := range w.Events() {
				if err != nil {
					got = append(got, reason(err))
					return
				}
				got = append(got, show(ev))
			}
		}()
		time.Sleep(time.Hour)
		apply(t, c, 9, "k=1")
		time.Sleep(time.Hour)
		w.Stop()
		<-done
		if s := strings.Join(got, " "); s != "synced@0 +k=1@9 watcher stopped" {
			t.Errorf("took %q", s)
		}
	})
}

func TestFieldD11AWatchBeforeTheSourceIsReadyIsSyncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true, Epoch: "e"})
		watchers := make(chan *watcher, 2)
		for _, prefix := range []string{"x/", "y/"} {
			go func() {
				w, err := c.Watch(t.Context(), watch{Prefix: prefix})
				if err != nil {
					t.Error(err)
				}
				watchers <- w
			}()
		}
		synctest.Wait()
		if err := c.Replace(at(3), listing("x/1=1 y/1=1")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w := <-watchers
			if got := pending(t, w); strings.Count(got, "synced") != 1 || strings.Count(got, "+") != 1 {
				t.Errorf("took %q, want one object and one Synced", got)
			}
			w.Stop()
		}
	})
}

func TestFieldD12ReadyForAnEmptyCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true, Epoch: "e"})
		ready := make(chan error, 1)
		go func() { ready <- c.WaitReady(t.Context()) }()
		synctest.Wait()
		if err := c.Replace(at(1), listing("")); err != nil {
			t.Fatal(err)
		}
		if err := <-ready; err != nil {
			t.Errorf("WaitReady: %v", err)
		}
	})
}

func TestFieldD14D16SnapshotsHaveNoFramesAndNoRepeats(t *testing.T) {
	c := newCache(t, options{Capacity: 2, Stall: watchcache.Resync{}})
	apply(t, c, 0, "a=1")
	late := mustWatch(t, c, watch{})
	wantPending(t, late, "+a=1@1i synced@1")
	for range 3 {
		apply(t, c, 0, "a=2")
	}
	wantPending(t, late, "reset@4 +a=2@4i synced@4") // this one's framing is not for
	fresh := mustWatch(t, c, watch{})                // the next, who gets the same snapshot
	apply(t, c, 0, "a=3")
	wantPending(t, fresh, "+a=2@4i synced@4 ~a=3@5")
}

func TestFieldD15AHerdSharesOneSnapshot(t *testing.T) {
	c := mirror(t, options{}, 10, "")
	if err := c.Replace(at(5), listing(numbered(1000))); err != nil { // a reset
		t.Fatal(err)
	}
	first := c.Snapshot()
	watchers := make([]*watcher, 1000)
	var herd sync.WaitGroup
	bytes := allocated(func() {
		for i := range watchers {
			herd.Go(func() { watchers[i] = mustWatch(t, c, watch{}) })
		}
		herd.Wait()
	})
	// A copy of the state for each would be 1000 times 1000 objects.
	if each := bytes / 1000; each > 4096 {
		t.Errorf("a watcher of the herd allocated %d bytes, want what does not depend on the state's size", each)
	}
	if c.Snapshot() != first {
		t.Error("a thousand watchers made a new snapshot of the same state")
	}
	for i := 0; i < len(watchers); i += 100 {
		if got := strings.Fields(pending(t, watchers[i])); len(got) != 1001 || got[1000] != "synced@5" {
			t.Fatalf("one of the herd took %d events, want the 1000 objects and synced@5", len(got))
		}
	}
}

func TestFieldD17AnEmptyStateIsFixedAtTheStart(t *testing.T) {
	c := newCache(t, options{})
	w := mustWatch(t, c, watch{})
	apply(t, c, 0, "a=1")
	wantPending(t, w, "synced@0 +a=1@1")
}

func TestFieldD18AnIdleWatchersPositionKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mirror(t, options{Capacity: 100}, 10, "")
		w, err := c.Watch(t.Context(), watch{Start: watchcache.After(at(10)), Key: "quiet", Bookmarks: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var position watchcache.Position
		go func() {
			for _, err := range w.Events() {
				if err == nil {
					position, _ = w.Position()
				}
			}
		}()
		for revision := uint64(11); revision < 100_000; revision += 50 {
			apply(t, c, revision, "loud=1")
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		w.Stop()
		if c.Oldest().Revision <= 10 {
			t.Fatal("history still reaches the start")
		}
		again, err := c.Watch(context.Background(), watch{Start: watchcache.After(position), Key: "quiet"})
		if err != nil {
			t.Fatalf("the position %v, kept up by bookmarks, with oldest %v: %v", position, c.Oldest(), err)
		}
		again.Stop()
	})
}

// TestBookmarksAreTrueWhileCommitsAreMade: a bookmark that is made at the very
// moment of a commit does not overtake it.
func TestBookmarksAreTrueWhileCommitsAreMade(t *testing.T) {
	c := newCache(t, options{Capacity: 1 << 17})
	const commits = 50_000
	var consumers sync.WaitGroup
	for _, o := range []watch{{Start: watchcache.FromNow()}, {Start: watchcache.FromNow(), Key: "a"}} {
		w := mustWatch(t, c, o)
		consumers.Go(func() {
			taken, marked := uint64(0), uint64(0)
			for taken < commits {
				w.RequestBookmark()
				ev, err := w.Next(context.Background())
				switch {
				case err != nil:
					t.Error(err)
					return
				case ev.Type == watchcache.Bookmark && ev.Revision != taken:
					t.Errorf("a bookmark at %d, when %d was taken", ev.Revision, taken)
					return
				case ev.Type == watchcache.Bookmark:
					marked++
				case ev.Revision != taken+1:
					t.Errorf("%d after %d", ev.Revision, taken)
					return
				default:
					taken = ev.Revision
				}
			}
			w.Stop()
		})
	}
	for range commits {
		apply(t, c, 0, "a=1")
	}
	consumers.Wait()
}

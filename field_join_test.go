package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
)

// Section A: joining the stream.

func TestFieldA1AListIsNotReplayable(t *testing.T) {
	c := mirror(t, options{}, 11, "obj=1")
	wantRefused(t, c, watch{Start: watchcache.After(at(10))}, watchcache.ErrExpired)
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(11))}), "")
	if c.Oldest() != at(11) {
		t.Errorf("Oldest is %v, want the list's revision", c.Oldest())
	}
}

func TestFieldA2OldestIsExplicitWhileTheRingGrowsAndShrinks(t *testing.T) {
	for capacity := 1; capacity <= 100; capacity += 11 {
		c := mirror(t, options{Capacity: capacity}, 100, "")
		for revision := uint64(101); revision <= 300; revision++ {
			apply(t, c, revision, fmt.Sprintf("k%d=1", revision%7))
			oldest := c.Oldest().Revision
			if kept := revision - oldest; kept > uint64(capacity) || kept < min(uint64(capacity), revision-100) {
				t.Fatalf("capacity %d: oldest is %d at head %d", capacity, oldest, revision)
			}
			if oldest > 100 {
				wantRefused(t, c, watch{Start: watchcache.After(at(100))}, watchcache.ErrExpired)
				wantRefused(t, c, watch{Start: watchcache.After(at(oldest - 1))}, watchcache.ErrExpired)
			}
			w := mustWatch(t, c, watch{Start: watchcache.After(at(oldest))})
			if ev, ok, err := w.TryNext(); !ok || err != nil || ev.Revision != oldest+1 {
				t.Fatalf("capacity %d: after %d came %v, %v, %v", capacity, oldest, ev, ok, err)
			}
			w.Stop()
		}
	}
}

func TestFieldA3A14AResumeIsExclusiveOnEveryPath(t *testing.T) {
	c := mirror(t, options{}, 12, "a=1")
	apply(t, c, 14, "b=2")
	apply(t, c, 15, "c=3")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(14))}), "+c=3@15")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.AfterRevision(13)}), "+b=2@14 +c=3@15")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(14)), Key: "b"}), "")
	live := mustWatch(t, c, watch{Start: watchcache.After(at(15))})
	apply(t, c, 16, "d=4")
	wantPending(t, live, "+d=4@16")
	interval, err := c.Since(14)
	if err != nil || interval.Len() != 2 {
		t.Errorf("Since(14) has %d events (%v), want those at 15 and 16", interval.Len(), err)
	}
}

func TestFieldA4ARegistrationDoesNotMissARelist(t *testing.T) {
	c := mirror(t, options{Relist: watchcache.RelistExpire}, 10, "a=1")
	if err := c.Replace(at(20), listing("a=2")); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, c, watch{Start: watchcache.After(at(10))}, watchcache.ErrExpired)

	// Against each other: whoever gets in is told of the relist one way or the other.
	for range 200 {
		c := mirror(t, options{}, 10, "a=1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Replace(at(20), listing("a=2"))
		}()
		w := mustWatch(t, c, watch{Start: watchcache.After(at(10))})
		<-done
		wantPending(t, w, "~a=2@20")
	}
	for range 200 {
		c := mirror(t, options{Relist: watchcache.RelistExpire}, 10, "a=1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Replace(at(20), listing("a=2"))
		}()
		w, err := c.Watch(context.Background(), watch{Start: watchcache.After(at(10))})
		<-done
		if err == nil {
			err = w.Err()
		}
		if !errors.Is(err, watchcache.ErrExpired) {
			t.Fatalf("a watcher that met a relist: %v, want ErrExpired from Watch or as its end", err)
		}
	}
}

func TestFieldA5AtLeastHoldsForStatesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mirror(t, options{}, 50, "a=1")
		if _, err := c.Watch(t.Context(), watch{AtLeast: 60, AtLeastWait: time.Second}); !errors.Is(err, watchcache.ErrTimeout) {
			t.Errorf("Watch at least 60 at 50: %v, want ErrTimeout", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		go func() {
			time.Sleep(time.Second)
			cancel(gone)
		}()
		if _, err := c.Watch(ctx, watch{AtLeast: 60}); !errors.Is(err, gone) {
			t.Errorf("Watch whose context ends: %v, want its cause", err)
		}
		go func() {
			time.Sleep(time.Second)
			apply(t, c, 60, "a=2")
		}()
		wantPending(t, mustWatch(t, c, watch{AtLeast: 60}), "+a=2@60i synced@60")
	})
}

func TestFieldA6NoPositionBeforeSynced(t *testing.T) {
	c := newCache(t, options{})
	for _, put := range []string{"b=1", "c=1", "a=1"} {
		apply(t, c, 0, put)
	}
	w := mustWatch(t, c, watch{})
	for _, want := range []string{"+a=1@3i", "+b=1@1i", "+c=1@2i"} {
		ev, _, _ := w.TryNext()
		if got := show(ev); got != want {
			t.Errorf("took %s, want %s", got, want)
		}
		if p, ok := w.Position(); ok {
			t.Errorf("position %v in the initial phase", p)
		}
	}
	wantPending(t, w, "synced@3")
	p, ok := w.Position()
	if !ok || p.Revision != 3 {
		t.Errorf("position %v, %v after Synced, want 3", p, ok)
	}
	apply(t, c, 0, "d=1")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(p)}), "+d=1@4")
}

func TestFieldA7A9NothingIsLostBetweenSnapshotAndStream(t *testing.T) {
	c := mirror(t, options{}, 10, "a=1 b=2")
	w := mustWatch(t, c, watch{})
	w.TryNext()
	apply(t, c, 11, "a=9")
	apply(t, c, 12, "-b")
	wantPending(t, w, "+b=2@10i synced@10 ~a=9@11 -b=2@12")
}

func TestFieldA9AStateArrivesWholeAndARefusedCommitNever(t *testing.T) {
	c := newCache(t, options{Capacity: 10})
	apply(t, c, 0, numbered(10_000))
	w := mustWatch(t, c, watch{})
	w.TryNext() // and the reader sleeps
	for range 5 {
		apply(t, c, 0, "late=1")
	}
	_, err := c.Apply(commit{Changes: []change{{Key: "late", Object: 666}, {Key: ""}}})
	if !errors.Is(err, watchcache.ErrInvalidKey) {
		t.Errorf("Apply with an empty key: %v, want ErrInvalidKey", err)
	}
	got := strings.Fields(pending(t, w))
	want := strings.Fields("+late=1@2 ~late=1@3 ~late=1@4 ~late=1@5 ~late=1@6")
	if len(got) != 9999+1+5 || got[9999] != "synced@1" || !slices.Equal(got[10_000:], want) {
		t.Errorf("%d events, ending in %v; want the other 9999 objects, synced@1 and %v", len(got), got[max(0, len(got)-6):], want)
	}
}

func TestFieldA8PositionsAreTheCurrentOnesAndDoNotWrap(t *testing.T) {
	c := mirror(t, options{}, 1, "")
	after := at(1)
	for k := uint64(2); k < 20; k++ {
		apply(t, c, k, "a=1")
		w := mustWatch(t, c, watch{Start: watchcache.After(after)})
		ev, _, _ := w.TryNext()
		if ev.Revision != k {
			t.Fatalf("reconnect %d resumed at %d", k, ev.Revision)
		}
		after, _ = w.Position()
		w.Stop()
	}
	wantRefused(t, c, watch{Start: watchcache.After(at(math.MaxUint64))}, watchcache.ErrFuture)
	ahead := mustWatch(t, c, watch{Start: watchcache.After(at(math.MaxUint64)).AllowFuture()})
	apply(t, c, math.MaxUint64, "a=2")
	wantPending(t, ahead, "")
}

func TestFieldA10ReadyWithoutHistoryIsNotResumable(t *testing.T) {
	c := mirror(t, options{}, 100, "a=1")
	wantRefused(t, c, watch{Start: watchcache.After(at(95))}, watchcache.ErrExpired)
	apply(t, c, 101, "a=2")
	wantRefused(t, c, watch{Start: watchcache.After(at(95))}, watchcache.ErrExpired)
}

func TestFieldA11NothingBelowAFuturePosition(t *testing.T) {
	c := mirror(t, options{}, 180, "a=1")
	w := mustWatch(t, c, watch{Start: watchcache.After(at(190)).AllowFuture()})
	if err := c.Progress(185); err != nil {
		t.Fatal(err)
	}
	c.RequestBookmarks()
	apply(t, c, 187, "a=2")
	apply(t, c, 188, "a=3")
	c.RequestBookmarks()
	wantPending(t, w, "")
	apply(t, c, 191, "a=4")
	c.RequestBookmarks()
	wantPending(t, w, "~a=4@191 bookmark@191")
}

func TestFieldA13NobodyJoinsAClosedCache(t *testing.T) {
	c := newCache(t, options{})
	c.Close()
	wantRefused(t, c, watch{}, watchcache.ErrClosed)
	wantRefused(t, c, watch{Start: watchcache.FromNow()}, watchcache.ErrClosed)
}

func TestFieldA16L5SilenceShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mirror(t, options{}, 1, "")
		time.Sleep(time.Hour)
		if got := c.Stats().SinceProgress; got != time.Hour {
			t.Errorf("SinceProgress is %v after an hour of silence", got)
		}
		if s, _ := c.Status(); time.Since(s.LastProgress) != time.Hour {
			t.Errorf("LastProgress is %v ago, want an hour", time.Since(s.LastProgress))
		}
		c.Progress(1) // at the head: nothing new, but alive
		if got := c.Stats().SinceProgress; got != 0 {
			t.Errorf("SinceProgress is %v after progress, want 0", got)
		}
	})
}

package watchcache_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/watchcache/watchcache"
)

// Section E: expired, compacted and unknown positions.

func TestFieldE1E2E9TooOldIsOneTypedErrorOnEveryPath(t *testing.T) {
	c := mirror(t, options{}, 5000, "a=1")
	check := func(path string, err error) {
		t.Helper()
		var expired *watchcache.ExpiredError
		if !errors.As(err, &expired) || !errors.Is(err, watchcache.ErrExpired) || expired.Requested.Revision != 1 || expired.Oldest != at(5000) {
			t.Errorf("%s: %v, want an ExpiredError from 1, with oldest 5000", path, err)
		}
	}
	for path, o := range map[string]watch{
		"position": {Start: watchcache.After(at(1))}, "revision": {Start: watchcache.AfterRevision(1)}, "key": {Start: watchcache.AfterRevision(1), Key: "a"},
		"future": {Start: watchcache.After(at(1)).AllowFuture()},
	} {
		w, err := c.Watch(context.Background(), o)
		if w != nil {
			t.Errorf("%s: a watcher beside the error", path)
		}
		check(path, err)
	}
	_, err := c.Since(1)
	check("Since", err)
	_, err = c.SnapshotAt(1)
	check("SnapshotAt", err)
}

func TestFieldE4TheBoundaryIsADeletion(t *testing.T) {
	c := mirror(t, options{}, 4, "a=1 b=1")
	apply(t, c, 5, "b=2")
	apply(t, c, 6, "-a")
	apply(t, c, 7, "b=3")
	if err := c.Trim(at(5)); err != nil {
		t.Fatal(err)
	}
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(5))}), "-a=1@6 ~b=3@7")
	if err := c.Trim(at(6)); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, c, watch{Start: watchcache.After(at(5))}, watchcache.ErrExpired)
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(6))}), "~b=3@7")
	if err := c.Trim(at(7)); err != nil {
		t.Fatal(err)
	}
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(7))}), "")
}

func TestFieldE5E13AParkedWatcherLearnsOfTheGap(t *testing.T) {
	c := mirror(t, options{Capacity: 50}, 2725, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	interval, err := c.Since(2725)
	if err != nil {
		t.Fatal(err)
	}
	for revision := uint64(2726); revision < 3000; revision++ {
		apply(t, c, revision, "a=1")
	}
	wantPending(t, w, "!watcher lagged")
	wantPending(t, w, "!watcher lagged") // E16: and again, without an end
	if n := interval.Len(); n != 0 {
		t.Errorf("an interval that was taken at the head has %d events", n)
	}
	interval, _ = c.Since(c.Oldest().Revision)
	for revision := uint64(3000); revision < 3100; revision++ {
		apply(t, c, revision, "a=1")
	}
	for ev, err := range interval.All() {
		if !errors.Is(err, watchcache.ErrExpired) {
			t.Errorf("an overtaken interval gave %v, %v", ev, err)
		}
	}
}

func TestFieldE6CompactionEndsOnlyThoseWhoStillNeedIt(t *testing.T) {
	c := mirror(t, options{}, 10, "")
	behind, live, narrow := mustWatch(t, c, watch{Start: watchcache.FromNow()}), mustWatch(t, c, watch{Start: watchcache.FromNow()}), mustWatch(t, c, watch{Start: watchcache.FromNow(), Key: "x"})
	for revision := uint64(11); revision <= 20; revision++ {
		apply(t, c, revision, "a=1")
		pending(t, live)
	}
	if err := c.Trim(at(15)); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(behind.Err(), watchcache.ErrLagged) || live.Err() != nil || narrow.Err() != nil {
		t.Errorf("behind: %v, live: %v, narrow: %v; want only the first to have lagged", behind.Err(), live.Err(), narrow.Err())
	}
}

func TestFieldE8SkippingAheadIsNotToBeHad(t *testing.T) {
	c := mirror(t, options{Stall: watchcache.Resync{}}, 50, "a=1 gone=1")
	w := mustWatch(t, c, watch{})
	wantPending(t, w, "+a=1@50i +gone=1@50i synced@50")
	apply(t, c, 60, "a=2")
	apply(t, c, 70, "-gone")
	apply(t, c, 80, "b=3")
	if err := c.Trim(at(80)); err != nil {
		t.Fatal(err)
	}
	wantPending(t, w, "reset@80 +a=2@60i +b=3@80i synced@80")
}

func TestFieldE10AnExpiredWatcherLeavesNothingBehind(t *testing.T) {
	c := newCache(t, options{Capacity: 1})
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	apply(t, c, 0, "a=1")
	apply(t, c, 0, "a=2")
	if !errors.Is(w.Err(), watchcache.ErrLagged) || c.Stats().Watchers != 0 {
		t.Fatalf("%v, with %d watchers left", w.Err(), c.Stats().Watchers)
	}
	again := mustWatch(t, c, watch{Start: watchcache.After(c.Position())})
	apply(t, c, 0, "a=3")
	wantPending(t, again, "~a=3@3")
}

func TestFieldE11TheHeadMovesByProgress(t *testing.T) {
	c := mirror(t, options{}, 100, "a=1")
	if err := c.Progress(500); err != nil {
		t.Fatal(err)
	}
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(500))}), "")
	wantPending(t, mustWatch(t, c, watch{AtLeast: 500}), "+a=1@100i synced@500")
	if err := c.WaitRevision(context.Background(), 500); err != nil {
		t.Error(err)
	}
}

func TestFieldE17RecoveryIsWholeOrRefused(t *testing.T) {
	c := mirror(t, options{Capacity: 5}, 1, "")
	for revision := uint64(2); revision <= 8; revision++ {
		apply(t, c, revision, "a=1")
	}
	wantRefused(t, c, watch{Start: watchcache.After(at(1))}, watchcache.ErrExpired)
	if got := pending(t, mustWatch(t, c, watch{Start: watchcache.After(at(3))})); len(strings.Fields(got)) != 5 {
		t.Errorf("from 3 came %q, want all five", got)
	}
}

func TestFieldE18E19AForeignPositionIsRefused(t *testing.T) {
	c := mirror(t, options{}, 12, "a=1")
	for _, epoch := range []string{"", "f", "e "} {
		wantRefused(t, c, watch{Start: watchcache.After(watchcache.Position{Epoch: epoch, Revision: 12})}, watchcache.ErrEpoch)
	}
	// The numbering begins again, and passes the old position.
	if err := c.Replace(watchcache.Position{Epoch: "f", Revision: 10}, listing("a=1")); err != nil {
		t.Fatal(err)
	}
	apply(t, c, 13, "a=2")
	wantRefused(t, c, watch{Start: watchcache.After(at(12))}, watchcache.ErrEpoch)
	// So too if nobody said that it is another.
	if err := c.Replace(watchcache.Position{Revision: 5}, listing("a=1")); err != nil {
		t.Fatal(err)
	}
	apply(t, c, 20, "a=3")
	wantRefused(t, c, watch{Start: watchcache.After(watchcache.Position{Epoch: "f", Revision: 13})}, watchcache.ErrEpoch)
}

func TestFieldE20LagAfterTheLastEventIsNone(t *testing.T) {
	c := newCache(t, options{Capacity: 4})
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	for range 4 {
		apply(t, c, 0, "a=1")
	}
	lag := func() (n int) {
		for info := range c.Watchers() {
			n = info.Lag
		}
		return n
	}
	if lag() != 4 {
		t.Errorf("lag is %d, want 4", lag())
	}
	pending(t, w)
	if err := c.Trim(c.Position()); err != nil || lag() != 0 {
		t.Errorf("lag is %d after everything was taken and trimmed (%v), want 0", lag(), err)
	}
}

package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func TestFieldE5ACompactionPastTheNextRevisionIsNotSkipped(t *testing.T) {
	c := mirror(t, options{}, 2725, "")
	parked := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	apply(t, c, 2726, "a=1")
	apply(t, c, 184693, "a=2")
	if err := c.Trim(at(184693)); err != nil {
		t.Fatal(err)
	}
	apply(t, c, 184694, "a=3")
	wantPending(t, parked, "!watcher lagged")
	var lagged *watchcache.StalledError
	if !errors.As(parked.Err(), &lagged) || lagged.Position != at(2725) || !lagged.Overrun {
		t.Errorf("ended with %v, want an overrun at 2725", parked.Err())
	}
}

func TestFieldE13AReplayThatIsOvertakenStopsWhereItIs(t *testing.T) {
	fresh := func() (*cache, func()) {
		c := mirror(t, options{Capacity: 900}, 100, "")
		for revision := uint64(101); revision <= 1000; revision++ {
			apply(t, c, revision, "a=1")
		}
		return c, func() {
			for revision := uint64(1001); revision <= 1300; revision++ {
				apply(t, c, revision, "a=2")
			}
		}
	}
	// follow takes all there is, lets what follows be overwritten when 300 came, and returns
	// the last revision before the error.
	follow := func(events iter.Seq2[event, error], overwrite func()) (last uint64, end error) {
		last = 100
		for ev, err := range events {
			if err != nil {
				return last, err
			}
			if ev.Revision != last+1 {
				t.Fatalf("%d came after %d", ev.Revision, last)
			}
			if last = ev.Revision; last == 300 {
				overwrite()
			}
		}
		return last, nil
	}

	c, overwrite := fresh()
	interval, err := c.Since(100)
	if err != nil {
		t.Fatal(err)
	}
	last, err := follow(interval.All(), overwrite)
	var expired *watchcache.ExpiredError
	if !errors.As(err, &expired) || expired.Requested != at(last) || last >= 400 {
		t.Errorf("an interval stopped after %d with %v, want ErrExpired from there, below the oldest", last, err)
	}

	c, overwrite = fresh()
	last, err = follow(mustWatch(t, c, watch{Start: watchcache.After(at(100))}).Events(), overwrite)
	var lagged *watchcache.StalledError
	if !errors.As(err, &lagged) || lagged.Position != at(last) || last != 300 {
		t.Errorf("a watcher stopped after %d with %v, want ErrLagged at 300", last, err)
	}
}

func TestFieldE12ExpiredInsideTheStreamLeadsToOneRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		var afters []watchcache.Position
		s := &script{list: func(n int) (uint64, string, error) { return uint64(10 * n), fmt.Sprintf("a=%d", n), nil }}
		s.watch = func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool) {
			afters = append(afters, after)
			if n == 1 {
				_ = yield(put(11, "b", 1), nil) && yield(sourceEvent{}, fmt.Errorf("too old: %w", watchcache.ErrExpired))
				return
			}
			<-ctx.Done()
		}
		stop := runs(t, c, s)
		time.Sleep(time.Hour)
		stop()
		lists, watches := s.calls()
		if want := []watchcache.Position{at(10), at(20)}; lists != 2 || watches != 2 || !slices.Equal(afters, want) {
			t.Errorf("%d lists and watches after %v, want one more list, and a watch from there: %v", lists, afters, want)
		}
	})
}

func TestFieldE14AllOfAFleetThatExpiredShareOneSnapshot(t *testing.T) {
	const fleet = 5000
	c := mirror(t, options{Capacity: 100}, 1, numbered(1000))
	for revision := uint64(2); revision <= 151; revision++ { // while all were away
		apply(t, c, revision, "hot=1")
	}
	first := c.Snapshot()
	bytes := allocated(func() {
		for range fleet {
			wantRefused(t, c, watch{Start: watchcache.After(at(1))}, watchcache.ErrExpired)
			mustWatch(t, c, watch{})
		}
	})
	if each := bytes / fleet; each > 4096 {
		t.Errorf("each of the fleet allocated %d bytes, want what does not depend on the state's size", each)
	}
	if c.Snapshot() != first {
		t.Error("the fleet made a new snapshot of the same state")
	}
}

// A state that takes longer to be taken than history reaches: it is taken whole,
// and what is then missing is said. It is for history to be long enough.
func TestFieldE15AStateThatTakesLongerThanHistoryReaches(t *testing.T) {
	const objects = 90
	slow := func(capacity int, policy watchcache.StallPolicy) (*cache, *watcher) {
		c := mirror(t, options{Capacity: capacity, Stall: policy}, 100, numbered(objects))
		w := mustWatch(t, c, watch{})
		for i := range uint64(objects) { // a commit for each object that it takes
			if ev, _, err := w.TryNext(); err != nil || !ev.Initial {
				t.Fatalf("took %s, %v in place of the state", show(ev), err)
			}
			apply(t, c, 101+i, "hot=1")
		}
		return c, w
	}
	_, w := slow(75, watchcache.Evict{})
	wantPending(t, w, "synced@100 !watcher lagged")
	var lagged *watchcache.StalledError
	if !errors.As(w.Err(), &lagged) || lagged.Position != at(100) {
		t.Errorf("ended with %v, want it to say that it was at 100", w.Err())
	}

	_, w = slow(75, watchcache.Resync{})
	got := strings.Fields(pending(t, w))
	if len(got) != 1+1+91+1 || got[0] != "synced@100" || got[1] != "reset@190" || got[len(got)-1] != "synced@190" {
		t.Errorf("%d events, from %s: want synced@100, and a state anew at 190", len(got), got[0])
	}

	_, w = slow(objects, watchcache.Evict{})
	if got := strings.Fields(pending(t, w)); len(got) != 1+objects || got[0] != "synced@100" || got[objects] != "~hot=1@190" {
		t.Errorf("%d events, from %s: want synced@100, and the %d since", len(got), got[0], objects)
	}
}

func TestFieldE16TheEndStaysTheEnd(t *testing.T) {
	c := mirror(t, options{Capacity: 100}, 1, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	for revision := uint64(2); revision <= 151; revision++ {
		apply(t, c, revision, "a=1")
	}
	_, first := w.Next(context.Background())
	if !errors.Is(first, watchcache.ErrLagged) {
		t.Fatalf("Next: %v, want ErrLagged", first)
	}
	for range 3 {
		if ev, err := w.Next(context.Background()); err != first || ev != (event{}) {
			t.Errorf("Next after the end: %v, %v, want the same error and nothing else", ev, err)
		}
	}
	select {
	case <-w.Done():
	default:
		t.Error("Done is open after the end")
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
	apply(t, c, 21, "x=1")
	wantPending(t, behind, "!watcher lagged")
	wantPending(t, live, "+x=1@21")
	wantPending(t, narrow, "+x=1@21")
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
	apply(t, c, 90, "a=4")
	wantPending(t, w, "~a=4@90")
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

package watchcache

// Faults that this library had, each with the smallest test that shows it.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// puts returns n changes of the keys k0, k1, ….
func puts(n, from int) (out []Change[int]) {
	for i := range n {
		out = append(out, Change[int]{Key: fmt.Sprintf("k%d", i), Object: from + i})
	}
	return out
}
func TestAgeTimerRestsWhileNothingMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{Retention: time.Minute, Keep: 2})
		defer c.Close()
		c.Apply(Commit[int]{Changes: puts(5, 0)})
		time.Sleep(2 * time.Minute)
	})
}
func TestRelistInTheInitialPhaseIsNoOtherEpoch(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true, Epoch: "e", Relist: RelistExpire})
	defer c.Close()
	none := func(func(Item[int], error) bool) {}
	c.Replace(Position{Revision: 10}, none)
	w, _ := c.Watch(context.Background(), WatchOptions[int]{})
	c.Replace(Position{Revision: 20}, none)
	if err := w.Err(); !errors.Is(err, ErrExpired) || errors.Is(err, ErrEpoch) {
		t.Errorf("ended in its initial phase by a relist in the same epoch: %v; want ErrExpired, not ErrEpoch", err)
	}
}
func TestIdleGrowsOverVerdictWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{})
		defer c.Close()
		c.Put("a", 1)
		var idle []time.Duration
		w, _ := c.Watch(context.Background(), WatchOptions[int]{Stall: StallFunc(StallLimits{InitialIdle: 10 * time.Second}, func(s Stall) Verdict {
			idle = append(idle, s.Idle)
			return VerdictWait
		})})
		defer w.Stop()
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if fmt.Sprint(idle) != "[10s 20s 30s]" {
			t.Errorf("asked with Idle %v, want [10s 20s 30s]", idle)
		}
	})
}
func TestKeepIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{Retention: time.Minute, Keep: 4})
		defer c.Close()
		for range 3 {
			c.Apply(Commit[int]{Changes: puts(3, 0)})
		}
		time.Sleep(2 * time.Minute)
		if n := c.Stats().History; n < 4 {
			t.Errorf("history keeps %d events, want at least Keep = 4", n)
		}
	})
}
func TestStreamIdleWithoutAnInitialPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{})
		defer c.Close()
		w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Stall: Evict{StallLimits: StallLimits{StreamIdle: 10 * time.Second}}})
		c.Put("a", 1)
		time.Sleep(time.Minute)
		if err := w.Err(); !errors.Is(err, ErrLagged) {
			t.Errorf("after a minute behind: %v, want ErrLagged after 10s", err)
		}
	})
}

func TestStreamIdleIsExactWithTheSourcesTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{})
		defer c.Close()
		w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Stall: Evict{StallLimits: StallLimits{StreamIdle: 10 * time.Second}}})
		time.Sleep(95 * time.Second)
		begin := time.Now()
		c.Apply(Commit[int]{Changes: puts(1, 0), Time: time.Unix(5, 0)})
		<-w.Done()
		if d := time.Since(begin); d != 10*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

func TestDeadlineIsNotOvertakenByLaterEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{Capacity: 4})
		defer c.Close()
		w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Deadline: time.Now().Add(time.Minute)})
		c.Put("a", 1)
		time.Sleep(2 * time.Minute) // the deadline has passed: a is all that is left
		if ev, err := w.Next(context.Background()); err != nil || ev.Key != "a" {
			t.Fatalf("Next: %v, %v, want a", ev, err)
		}
		for i := range 10 { // not for this watcher any more
			c.Put(fmt.Sprint(i), i)
		}
		if _, err := w.Next(context.Background()); !errors.Is(err, ErrDeadline) {
			t.Errorf("everything before the deadline was taken: ended with %v, want ErrDeadline", err)
		}
	})
}
func TestSyncedIsClosedInTheBodyOfTheLastEvent(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	c.Put("a", 1)
	w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: AfterRevision(0)})
	for range w.Events() {
		select {
		case <-w.Synced():
		default:
			t.Error("the one event that was there was taken: Synced is open, want it closed")
		}
		break
	}
}
func TestSyncedOfAnOverrunWatcherIsCounted(t *testing.T) {
	c, _ := New(Options[int]{Capacity: 1})
	defer c.Close()
	w, _ := c.Watch(context.Background(), WatchOptions[int]{})
	c.Put("a", 1)
	c.Put("b", 2) // what follows the snapshot is gone
	for ev := range w.Events() {
		if s := c.Stats(); ev.Type != Synced || s.Endings.Lagged != 1 || s.Deliveries != 1 {
			t.Errorf("while %v is taken: %d lagged, %d deliveries, want Synced, 1, 1", ev.Type, s.Endings.Lagged, s.Deliveries)
		}
		break
	}
}
func TestSnapshotAtOldestPartCanBeFollowed(t *testing.T) {
	c, _ := New(Options[int]{Epoch: "e", Capacity: 1})
	defer c.Close()
	c.Put("a", 1)
	c.Apply(Commit[int]{Revision: 1, Continues: true, Changes: []Change[int]{{Key: "b", Object: 2}}})
	c.Put("c", 3)
	s, err := c.SnapshotAt(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Watch(context.Background(), WatchOptions[int]{Start: After(s.Position())}); err != nil {
		t.Errorf("a snapshot at %v, oldest %v: %v, want a watcher", s.Position(), c.Oldest(), err)
	}
}
func TestPositionHasNoPartOfAnEarlierRevision(t *testing.T) {
	c, _ := New(Options[int]{Epoch: "e"})
	defer c.Close()
	c.Put("a", 1)
	c.Apply(Commit[int]{Continues: true, Changes: []Change[int]{{Key: "none", Delete: true}}}) // the head is e:1.1, without an event
	w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow()})
	c.Put("b", 2)
	for _, err := range w.Events() {
		if p, _ := w.Position(); err != nil || p != (Position{Epoch: "e", Revision: 2}) {
			t.Errorf("after b at revision 2 Position is %v (%v), want e:2", p, err)
		}
		break
	}
}
func TestSyncedIsClosedWhenNothingIsToBeTaken(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	first, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Key: "x"})
	defer first.Stop()
	c.Put("a", 1)
	w, err := c.Watch(context.Background(), WatchOptions[int]{Start: AfterRevision(0), Key: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	select {
	case <-w.Synced():
	default:
		t.Error("nothing of x was there at the start: Synced is open, want it closed")
	}
}
func TestBatchOfInitialEventsHasTheSnapshotsRevision(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	c.Put("a", 1)
	w, _ := c.Watch(context.Background(), WatchOptions[int]{})
	for b, err := range w.Batches() {
		if err != nil || b.Revision != 1 {
			t.Errorf("the initial batch is at %d (%v), want the snapshot's revision 1", b.Revision, err)
		}
		break
	}
}
func TestSyncedIsOpenWhileEventsOfTheGroupAreToBeTaken(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	c.Put("a", 1)
	first, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Key: "x"}) // the group's list begins here
	defer first.Stop()
	c.Put("x", 2)
	w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: AfterRevision(0), Key: "x"})
	defer w.Stop()
	select {
	case <-w.Synced():
		t.Error("x was there at the start and is not taken: Synced is closed, want it open")
	default:
	}
}

func TestDrainingWatcherThatLostAnEventDoesNotClaimToHaveAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{Capacity: 1})
		defer c.Close()
		w, _ := c.Watch(context.Background(), WatchOptions[int]{Prefix: "x", Deadline: time.Now().Add(time.Second)})
		c.Put("x1", 1) // before the deadline: to be delivered, or missed loudly
		time.Sleep(2 * time.Second)
		for i := range 20 {
			c.Put(fmt.Sprint("x", i), i) // drops x1 from history, and from the list of the watcher's group
		}
		for ev, err := range w.Events() {
			if err != nil && !errors.Is(err, ErrLagged) {
				t.Errorf("x1 was never delivered: ended with %v, want ErrLagged", err)
			}
			if err == nil && ev.Type != Synced {
				t.Errorf("%v came, want Synced only", ev)
			}
		}
	})
}

func TestSyncedHasAPositionEvenIfTheWatcherEndsMeanwhile(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	c.Put("a", 1)
	for range 5_000 {
		w, _ := c.Watch(context.Background(), WatchOptions[int]{})
		stopped := make(chan struct{})
		go func() {
			w.Stop()
			close(stopped)
		}()
		for ev := range w.Events() {
			if _, ok := w.Position(); ev.Type == Synced && !ok {
				t.Fatal("Synced was delivered, and there is no position")
			}
		}
		<-stopped
	}
}

func TestTrimWaitsForNobodyButWatchersThatDrain(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow()})
	c.Put("a", 1)
	ctx, cancel := context.WithCancel(context.Background())
	down := make(chan error)
	go func() { down <- c.Shutdown(ctx) }()
	for !c.refusesWrites() {
		runtime.Gosched()
	}
	if err := c.Trim(c.Position()); !errors.Is(err, ErrClosed) {
		t.Errorf("Trim during Shutdown: %v, want ErrClosed", err)
	}
	if ev, err := w.Next(ctx); err != nil || ev.Key != "a" {
		t.Errorf("the draining watcher got %v, %v", ev, err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	cancel()
}

func TestListingThatGoesOnKeepsItsError(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	broken := errors.New("broken")
	err := c.Replace(Position{}, func(yield func(Item[int], error) bool) {
		yield(Item[int]{}, broken)
		yield(Item[int]{Key: "a"}, nil)
	})
	if err != broken {
		t.Errorf("%v, want the listing's own error", err)
	}
}

func TestRevisionZeroHasNoParts(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true})
	defer c.Close()
	c.Replace(Position{}, func(func(Item[int], error) bool) {})
	for _, head := range []uint64{0, 5} {
		if head > 0 {
			c.Apply(Commit[int]{Revision: head, Changes: puts(1, 0)})
		}
		at := c.Position()
		if _, err := c.Apply(Commit[int]{Continues: true, Changes: puts(1, 0)}); !errors.Is(err, ErrRevisionOrder) || c.Position() != at {
			t.Errorf("at %d: %v, now at %v; want ErrRevisionOrder", head, err, c.Position())
		}
	}
}

type endsFor struct{ err error }

func (s endsFor) List(context.Context, uint64) (Position, iter.Seq2[Item[int], error], error) {
	return Position{}, nil, s.err
}
func (s endsFor) Watch(context.Context, Position) iter.Seq2[SourceEvent[int], error] { return nil }

func TestRunTellsWhatATerminalErrorWasWrappedIn(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true})
	defer c.Close()
	broken := errors.New("broken")
	wrapped := fmt.Errorf("page 3: %w", Terminal(broken))
	if err := c.Run(context.Background(), endsFor{Terminal(broken)}); err != broken {
		t.Errorf("%v, want the error itself", err)
	}
	if err := c.Run(context.Background(), endsFor{wrapped}); err != wrapped || !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, wrapped)
	}
	if err := c.Run(context.Background(), nil); !errors.Is(err, ErrInvalidOption) {
		t.Errorf("Run without a source: %v, want ErrInvalidOption", err)
	}
}

func TestWatchWithAnEndedContextTellsThatThereIsNoState(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true})
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Watch(ctx, WatchOptions[int]{}); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotReady) {
		t.Errorf("%v, want the context's cause and ErrNotReady", err)
	}
}

func TestConvertsPanicIsNamed(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	w, _ := c.Watch(context.Background(), WatchOptions[int]{})
	for range PipeBatches(w, 0, func(Batch[int]) (int, bool) { panic("no") }) {
	}
	if p, ok := errors.AsType[*PanicError](w.Err()); !ok || p.Callback != "PipeBatches' convert" {
		t.Errorf("%v, want a panic in PipeBatches' convert", w.Err())
	}
}

func TestWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ever = time.Duration(math.MaxInt64)
		c, _ := New(Options[int]{Retention: ever, Keep: 1})
		defer c.Close()
		time.Sleep(time.Second)
		w, err := c.Watch(context.Background(), WatchOptions[int]{
			Start: FromNow(), Bookmarks: ever, Deadline: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Stall: Evict{StallLimits{StreamIdle: ever}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			c.Put("a", i)
			time.Sleep(time.Hour)
			synctest.Wait()
			if ev, ok, err := w.TryNext(); !ok || err != nil || ev.Object != i {
				t.Fatalf("%v, %v, %v; want the %d. event", ev, ok, err, i)
			}
		}
		if _, ok, err := w.TryNext(); ok || err != nil {
			t.Errorf("something more, or the end: %v", err)
		}
		if c.Oldest().Revision != 0 {
			t.Errorf("history begins at %v, with nothing too old", c.Oldest())
		}
	})
}

func TestWaitAfterTheEndKeepsNothing(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow()})
	gone := weak.Make(w)
	w.Stop()
	<-w.Wait()
	w = nil
	runtime.GC()
	if gone.Value() != nil {
		t.Error("a watcher that has ended is kept by its Wait")
	}
}

func TestSearchingIsNoStall(t *testing.T) {
	for name, match := range map[string]bool{"matches nothing": false, "matches everything": true} {
		for _, batches := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, _ := New(Options[int]{})
				defer c.Close()
				c.Apply(Commit[int]{Changes: puts(400, 0)})
				w, _ := c.Watch(context.Background(), WatchOptions[int]{Filter: func(string, int) bool {
					time.Sleep(200 * time.Millisecond)
					return match
				}})
				if batches {
					for b, err := range w.Batches() {
						if err != nil {
							t.Errorf("%s: %v", name, err)
						} else if b.Events[0].Type == Synced {
							break
						}
					}
					return
				}
				for ev, err := range w.Events() {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					} else if ev.Type == Synced {
						break
					}
				}
			})
		}
	}
}

func TestEpochThatWasLeftIsAnother(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true})
	defer c.Close()
	none := func(func(Item[int], error) bool) {}
	c.Replace(Position{Epoch: "A", Revision: 10}, none)
	c.Apply(Commit[int]{Revision: 20, Changes: puts(1, 0)})
	old := c.Position()
	c.Replace(Position{Epoch: "B", Revision: 1}, none)
	c.Replace(Position{Epoch: "A", Revision: 5}, none)
	for revision := uint64(6); revision < 25; revision++ {
		c.Apply(Commit[int]{Revision: revision, Changes: puts(1, 0)})
	}
	if _, err := c.Watch(context.Background(), WatchOptions[int]{Start: After(old)}); !errors.Is(err, ErrExpired) {
		t.Errorf("after %v, of another history, now %v: %v, want ErrExpired", old, c.Position(), err)
	}
}

func TestNothingContinuesBeforeTheFirstCommit(t *testing.T) {
	c, _ := New(Options[int]{FirstRevision: 5, Epoch: "e"})
	defer c.Close()
	if _, err := c.Apply(Commit[int]{Continues: true, Changes: puts(1, 0)}); !errors.Is(err, ErrRevisionOrder) {
		t.Errorf("%v at %v, want ErrRevisionOrder", err, c.Position())
	}
	c.Put("a", 1)
	c.Apply(Commit[int]{Continues: true}) // as Progress at the head
	if want := (Position{Epoch: "e", Revision: 5}); c.Position() != want {
		t.Errorf("at %v after a continuation without changes, want %v", c.Position(), want)
	}
}

func TestThePastStateThatWasUsedLastIsKept(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	for i := range 8 {
		c.Put("a", i)
	}
	first, _ := c.SnapshotAt(1)
	for revision := uint64(2); revision < 7; revision++ {
		c.SnapshotAt(revision)
		if again, _ := c.SnapshotAt(1); again != first {
			t.Fatalf("another snapshot of revision 1 after %d others", revision-1)
		}
	}
	gone := weak.Make(first)
	first = nil
	c.Close()
	runtime.GC()
	if gone.Value() != nil {
		t.Error("a closed cache keeps past states")
	}
}

func TestSizesThatAreNoneCountAsNone(t *testing.T) {
	size := -5
	c, _ := New(Options[int]{MaxBytes: 100, Size: func(string, int) int { return size }})
	defer c.Close()
	for i := range 4 {
		c.Put("a", i)
	}
	size = math.MaxInt
	for i := range 4 {
		c.Put("a", i)
	}
	if s := c.Stats(); s.HistoryBytes < 0 || s.History != 1 {
		t.Errorf("%d events of %d bytes, want the newest only", s.History, s.HistoryBytes)
	}
}

func TestBookmarkThatWasDueAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{})
		defer c.Close()
		w, _ := c.Watch(context.Background(), WatchOptions[int]{
			Start: FromNow(), Key: "quiet", Deadline: time.Now().Add(10 * time.Second), DeadlineLead: 2 * time.Second,
		})
		c.Put("a", 1)
		time.Sleep(11 * time.Second) // the consumer is elsewhere
		synctest.Wait()
		c.Put("a", 2)
		if ev, ok, err := w.TryNext(); !ok || err != nil || ev.Type != Bookmark || ev.Revision != 1 {
			t.Errorf("%v, %v, %v; want the bookmark at 1, where the deadline found it", ev, ok, err)
		}
		if _, _, err := w.TryNext(); !errors.Is(err, ErrDeadline) {
			t.Errorf("%v, want ErrDeadline", err)
		}
	})
}

func TestWatchThatFailsIsNoEnding(t *testing.T) {
	c, _ := New(Options[int]{})
	defer c.Close()
	w, _ := c.Watch(context.Background(), WatchOptions[int]{})
	w.refuse(&ExpiredError{}) // as when history goes while Watch looks through it
	if s := c.Stats(); s.Watchers != 0 || s.Endings != (Endings{}) || !errors.Is(w.Err(), ErrExpired) {
		t.Errorf("%d watchers, endings %+v, Err %v; want none, none, ErrExpired", s.Watchers, s.Endings, w.Err())
	}
}

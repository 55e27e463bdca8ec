package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/watchcache/watchcache"
)

// Section F: slow watchers and isolation.

func TestFieldF1F2F3F9F12WritersDoNotWaitForWhoIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{})
		block := make(chan struct{})
		for range 50 { // each in its loop body, for good
			w, err := c.Watch(t.Context(), watch{Start: watchcache.FromNow()})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for range w.Events() {
					<-block
				}
			}()
		}
		full, err := c.Watch(t.Context(), watch{Start: watchcache.FromNow()})
		if err != nil {
			t.Fatal(err)
		}
		channel := full.Channel(0) // whose goroutine is blocked in a send
		begin := time.Now()
		apply(t, c, 0, "a=1")
		synctest.Wait()
		healthy := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		apply(t, c, 0, "a=2")
		wantPending(t, healthy, "~a=2@2")
		healthy.Stop()
		c.Close()
		if d := time.Since(begin); d != 0 {
			t.Errorf("with 50 blocked watchers, writing, watching, stopping and closing took %v", d)
		}
		close(block)
		for range channel {
		}
	})
}

func TestFieldF4F13F21TheSlowCatchUpOnTheirStream(t *testing.T) {
	c := newCache(t, options{})
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	for range 5000 {
		apply(t, c, 0, "a=1")
	}
	if got := len(strings.Fields(pending(t, w))); got != 5000 {
		t.Errorf("took %d events of 5000", got)
	}
}

func TestFieldF5F6F17AReplayIsTheConsumersOwnWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{})
		start := c.Position()
		for range 10_000 {
			apply(t, c, 0, "a=1")
		}
		w, err := c.Watch(t.Context(), watch{Start: watchcache.After(start)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range w.Events() {
				time.Sleep(time.Second)
			}
		}()
		begin := time.Now()
		for range 500 {
			apply(t, c, 0, "b=1")
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("writing while a watcher replays took %v", d)
		}
		c.Close()
		<-done
	})
}

func TestFieldF11F20AnyLossIsSaid(t *testing.T) {
	c := newCache(t, options{Capacity: 16})
	evicted, resynced, joined := mustWatch(t, c, watch{}), mustWatch(t, c, watch{Stall: watchcache.Resync{}}), mustWatch(t, c, watch{Coalesce: true})
	for _, w := range []*watcher{evicted, resynced, joined} {
		wantPending(t, w, "synced@0")
	}
	for i := range 10 {
		apply(t, c, 0, fmt.Sprintf("a=%d", i))
	}
	wantPending(t, joined, "+a=9@10")
	for i := range 100 {
		apply(t, c, 0, fmt.Sprintf("a=%d", i))
	}
	wantPending(t, evicted, "!watcher lagged")
	wantPending(t, resynced, "reset@110 +a=99@110i synced@110")
	if got := c.Stats().Endings.Lagged; got != 2 {
		t.Errorf("%d watchers lagged by the figures, want 2", got)
	}
}

func TestFieldF14J7AStalledWatcherPinsNoHistory(t *testing.T) {
	type object [300_000]byte
	c, err := watchcache.New(watchcache.Options[*object]{
		Size: func(string, *object) int { return 300_000 }, MaxBytes: 3_000_000, Stall: watchcache.Resync{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Watch(context.Background(), watchcache.WatchOptions[*object]{Start: watchcache.FromNow()})
	if err != nil {
		t.Fatal(err)
	}
	block, inside := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range w.Events() {
			close(inside)
			<-block
			break
		}
	}()
	var all []weak.Pointer[object]
	put := func() {
		o := new(object)
		all = append(all, weak.Make(o))
		c.Put("a", o)
	}
	put()
	<-inside
	for range 100 {
		put()
	}
	runtime.GC()
	alive := 0
	for _, p := range all {
		if p.Value() != nil {
			alive++
		}
	}
	// Ten in history, the state, the one in the loop body, and a sixteenth of slack.
	if alive > 13 {
		t.Errorf("%d objects of %d are alive beside a stalled watcher, with room for 10 in history", alive, len(all))
	}
	close(block)
	<-done
}

func TestFieldF15EveryAttemptGetsFurther(t *testing.T) {
	c := mirror(t, options{Capacity: 1000}, 1, "")
	revision := uint64(2)
	for ; revision < 900; revision++ {
		apply(t, c, revision, "a=1")
	}
	position := at(1)
	for range 20 {
		w := mustWatch(t, c, watch{Start: watchcache.After(position)})
		for range 30 {
			w.TryNext()
		}
		now, ok := w.Position()
		if !ok || now.Revision <= position.Revision {
			t.Fatalf("an attempt from %v got to %v", position, now)
		}
		position = now
		w.Stop()
		for range 10 {
			apply(t, c, revision, "a=1")
			revision++
		}
	}
}

func TestFieldF19AnIdleHandlerIsBounded(t *testing.T) {
	c := newCache(t, options{Capacity: 100})
	w := mustWatch(t, c, watch{Start: watchcache.FromNow(), Stall: watchcache.Resync{}})
	for range 100_000 {
		apply(t, c, 0, "a=1")
	}
	if got := c.Stats().History; got != 100 {
		t.Errorf("history has %d events, want its bound of 100", got)
	}
	wantPending(t, w, "reset@100000 +a=1@100000i synced@100000")
}

func TestFieldF22CloneKeepsConsumersApart(t *testing.T) {
	clone := func(m map[string]int) map[string]int {
		c := map[string]int{}
		for k, v := range m {
			c[k] = v
		}
		return c
	}
	c, err := watchcache.New(watchcache.Options[map[string]int]{Clone: clone})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spoiler, _ := c.Watch(context.Background(), watchcache.WatchOptions[map[string]int]{Start: watchcache.FromNow()})
	victim, _ := c.Watch(context.Background(), watchcache.WatchOptions[map[string]int]{Start: watchcache.FromNow()})
	c.Put("a", map[string]int{"x": 1})
	ev, _, _ := spoiler.TryNext()
	ev.Object["x"] = 99
	got, _ := c.Get("a")
	got.Object["x"] = 98
	for i := range c.Snapshot().All() {
		i.Object["x"] = 97
	}
	if ev, _, _ := victim.TryNext(); ev.Object["x"] != 1 {
		t.Errorf("a watcher got %v that another has changed", ev.Object)
	}
	if i, _ := c.Get("a"); i.Object["x"] != 1 {
		t.Errorf("the cache has %v, which a reader has changed", i.Object)
	}
	spoiler.Stop()
	victim.Stop()
}

// TestFieldF2NoUserCodeUnderALock: every hook may call the cache, except those
// that see the state before, which may only read it.
func TestFieldF2NoUserCodeUnderALock(t *testing.T) {
	var c *cache
	var called atomic.Int32
	read := func() {
		called.Add(1)
		c.Get("a")
		c.Stats()
		c.Snapshot().Len()
		if w, err := c.Watch(context.Background(), watch{Start: watchcache.FromNow(), Stall: watchcache.Evict{}}); err == nil {
			w.Stop()
		}
	}
	write := func() {
		read()
		c.Put("side", 1)
	}
	ready := false
	hook := func(f func()) {
		if ready {
			f()
		}
	}
	depth := 0
	once := func(f func()) { // a hook that writes is called by what it writes
		if depth == 0 {
			depth++
			f()
			depth--
		}
	}
	c = newCache(t, options{Capacity: 3,
		Size:    func(string, int) int { hook(func() { once(write) }); return 1 },
		Indexes: map[string]func(string, int) []string{"i": func(string, int) []string { hook(func() { once(write) }); return []string{"x"} }},
		Publish: func(_ uint64, ch change, _ int) int { hook(func() { once(read) }); return ch.Object },
		Equal:   func(a, b int) bool { hook(func() { once(read) }); return a == b },
		Clone:   func(i int) int { hook(func() { once(func() { c.Put("side", 2) }) }); return i },
		Stall: watchcache.StallFunc(watchcache.StallLimits{Lag: 1}, func(watchcache.Stall) watchcache.Verdict {
			hook(func() { once(write) })
			return watchcache.VerdictWait
		}),
	})
	c.Put("a", 1)
	ready = true
	w := mustWatch(t, c, watch{Filter: func(string, int) bool { hook(func() { once(write) }); return true }})
	c.Put("a", 2)
	pending(t, w)
	if err := c.Replace(watchcache.Position{}, listing("a=3 b=4")); err != nil {
		t.Error(err)
	}
	if called.Load() < 10 {
		t.Errorf("hooks were called %d times only", called.Load())
	}
}

func TestStallLimitRestartsWithEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{})
		for i := range 10 {
			apply(t, c, 0, fmt.Sprintf("k%d=1", i))
		}
		w, err := c.Watch(t.Context(), watch{})
		if err != nil {
			t.Fatal(err)
		}
		for range 9 { // slow, and moving: four and a half minutes
			time.Sleep(watchcache.DefaultInitialIdle - 1)
			if _, err := w.Next(t.Context()); err != nil {
				t.Fatalf("a watcher that moves was ended: %v", err)
			}
		}
		begin := time.Now()
		<-w.Done()
		var stalled *watchcache.StalledError
		if d := time.Since(begin); d != watchcache.DefaultInitialIdle || !errors.As(w.Err(), &stalled) || stalled.Phase != watchcache.PhaseInitial {
			t.Errorf("ended after %v with %v, want ErrStalled after 30 s", d, w.Err())
		}
	})
}

// TestAPolicyMayWrite: it is asked after the writer has let go of everything.
func TestAPolicyMayWrite(t *testing.T) {
	defer mustEnd(t, "the policy waits for the one who asks it")()
	synctest.Test(t, func(t *testing.T) {
		var c *cache
		asked := map[watchcache.Phase]bool{}
		limits := watchcache.StallLimits{InitialIdle: time.Minute, Lag: 1}
		c = newCache(t, options{Capacity: 2, Stall: watchcache.StallFunc(limits, func(s watchcache.Stall) watchcache.Verdict {
			if !asked[s.Phase] {
				asked[s.Phase] = true
				if _, err := c.Put("side", len(asked)); err != nil {
					t.Error(err)
				}
			}
			return watchcache.VerdictResync
		})})
		streams := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		apply(t, c, 0, "a=1") // asked by the writer
		wantPending(t, streams, "reset@2 +a=1@1i +side=1@2i synced@2")
		streams.Stop()
		initial := mustWatch(t, c, watch{})
		time.Sleep(2 * time.Minute) // asked by the watchdog
		synctest.Wait()
		wantPending(t, initial, "reset@3 +a=1@1i +side=2@3i synced@3")
		initial.Stop()
		if len(asked) != 2 {
			t.Errorf("asked in %v; want in both phases", asked)
		}
	})
}

// mustEnd ends the process, and says why, if the test does not end: where goroutines
// wait for a lock, nothing else can. Call it outside of the bubble.
func mustEnd(t *testing.T, otherwise string) (ended func() bool) {
	return time.AfterFunc(time.Minute, func() { panic(t.Name() + ": " + otherwise) }).Stop
}

// TestAFastConsumerThatBecomesSlowMoves: what a consumer takes without a
// look at the clock counts as well.
func TestAFastConsumerThatBecomesSlowMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Capacity: 8192})
		for i := range 5000 {
			apply(t, c, 0, fmt.Sprintf("k%04d=%d", i, i))
		}
		for _, start := range []watchcache.Start{watchcache.FromState(), watchcache.AfterRevision(1)} {
			w := mustWatch(t, c, watch{Start: start, Stall: watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: 30 * time.Second, StreamIdle: 30 * time.Second}}})
			n := 0
			for _, err := range w.Events() {
				if err != nil {
					t.Errorf("after %d events: %v", n, err)
					break
				}
				if n++; n < 3000 {
					time.Sleep(100 * time.Nanosecond)
				} else {
					time.Sleep(time.Second)
				}
				if n == 3200 {
					break
				}
			}
		}
	})
}

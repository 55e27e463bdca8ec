package watchcache_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/watchcache/watchcache"
)

// Sections J, K and L: memory, scale, figures.

// heap is what the heap has after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestFieldJ1J3AnIdleCacheShrinksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Capacity: 1 << 17, Retention: time.Minute, Keep: 10})
		burst := func(n int) {
			for range n {
				apply(t, c, 0, "a=1")
			}
		}
		burst(20)
		time.Sleep(2 * time.Minute)
		resting := heap()
		for range 5 {
			burst(20_000)
			if got := c.Stats().History; got < 20_000 {
				t.Fatalf("history has %d events after the burst", got)
			}
			time.Sleep(2 * time.Minute) // nobody comes by
			synctest.Wait()
			if got := c.Stats().History; got != 10 {
				t.Fatalf("history has %d events at rest, want Keep", got)
			}
		}
		if now := heap(); now > resting+resting/10+100_000 {
			t.Errorf("%d bytes at rest after bursts, %d before", now, resting)
		}
		c.Close()
	})
}

func TestFieldJ4HistoryNeverExceedsItsCapacity(t *testing.T) {
	for _, capacity := range []int{1, 2, 100, 1500} {
		c := newCache(t, options{Capacity: capacity})
		for range 3 * capacity {
			apply(t, c, 0, "a=1")
			if got := c.Stats().History; got > capacity {
				t.Fatalf("history has %d events of %d", got, capacity)
			}
		}
		if got := c.Stats().History; got != capacity {
			t.Errorf("a full history has %d events, want exactly %d", got, capacity)
		}
	}
}

func TestFieldJ5AHugeCommitLeavesNoScratch(t *testing.T) {
	c := newCache(t, options{Capacity: 1000})
	w := mustWatch(t, c, watch{Prefix: "huge/", Start: watchcache.FromNow()})
	for range 5 {
		apply(t, c, 0, "a=1")
	}
	before := heap()
	const n = 200_000
	changes := make([]change, 0, 2*n)
	for i := range n {
		changes = append(changes, change{Key: fmt.Sprintf("huge/%d", i), Object: i})
	}
	for i := range n {
		changes = append(changes, change{Key: changes[i].Key, Delete: true})
	}
	if _, err := c.Apply(commit{Changes: changes}); err != nil {
		t.Fatal(err)
	}
	changes = nil
	w.Stop()
	for range 2000 {
		apply(t, c, 0, "a=1")
	}
	if now := heap(); now > before+500_000 {
		t.Errorf("%d bytes more than before a commit of %d changes that left nothing", now-before, 2*n)
	}
	runtime.KeepAlive(c)
}

func TestFieldJ6DroppedHistoryIsFree(t *testing.T) {
	type object [1000]byte
	for name, drop := range map[string]func(c *watchcache.Cache[*object]){
		"trim": func(c *watchcache.Cache[*object]) { c.Trim(c.Position()) },
		"events": func(c *watchcache.Cache[*object]) {
			for range 2000 {
				c.Put("other", nil)
			}
		},
		"replace": func(c *watchcache.Cache[*object]) {
			c.Replace(watchcache.Position{Epoch: "other", Revision: 1}, func(func(watchcache.Item[*object], error) bool) {})
		},
		"age": func(*watchcache.Cache[*object]) { time.Sleep(time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := watchcache.New(watchcache.Options[*object]{Capacity: 2000, Retention: time.Minute, Keep: 1})
			if err != nil {
				t.Fatal(err)
			}
			var old []weak.Pointer[object]
			for range 1000 {
				o := new(object)
				old = append(old, weak.Make(o))
				c.Put("a", o)
			}
			c.Delete("a")
			c.Put("last", nil)
			drop(c)
			synctest.Wait()
			runtime.GC()
			alive := 0
			for _, p := range old {
				if p.Value() != nil {
					alive++
				}
			}
			// While events come, the oldest chunk may hold what it had before, up to a
			// sixteenth of the capacity.
			if name == "events" {
				alive -= 2000 / 16
			}
			if alive > 0 {
				t.Errorf("%s: %d of %d objects that history dropped are alive", name, alive, len(old))
			}
			c.Close()
		})
	}
}

func TestFieldJ9K6QuietWatchersAreSmall(t *testing.T) {
	c := newCache(t, options{})
	const n = 10_000
	watchers := make([]*watcher, n)
	before := heap()
	for i := range watchers {
		watchers[i], _ = c.Watch(context.Background(), watch{Start: watchcache.FromNow()})
	}
	if each := (heap() - before) / n; each > 1000 {
		t.Errorf("%d bytes a watcher, want a few hundred", each)
	}
	for _, w := range watchers {
		w.Stop()
	}
	if left := int64(heap()) - int64(before); left > 10*n && c.Stats().Watchers != 0 {
		t.Errorf("%d bytes and %d watchers are left", left, c.Stats().Watchers)
	}
	runtime.KeepAlive(watchers)
}

func TestFieldK1SnapshotsShareTheState(t *testing.T) {
	c := newCache(t, options{})
	for i := range 20_000 {
		apply(t, c, 0, fmt.Sprintf("k%d=1", i))
	}
	before := heap()
	snapshots := make([]*watchcache.Snapshot[int], 50)
	for i := range snapshots {
		snapshots[i] = c.Snapshot()
		apply(t, c, 0, "k1=2")
	}
	if grown := int64(heap()) - int64(before); grown > 2_000_000 { // 50 copies would be 50 MB and more
		t.Errorf("50 snapshots and commits took %d bytes", grown)
	}
	for i, s := range snapshots {
		if got, _ := s.Get("k1"); got.Object != min(2, i+1) {
			t.Errorf("snapshot %d has %d", i, got.Object)
		}
	}
}

func TestFieldK3K4AnEventTouchesOnlyItsOwn(t *testing.T) {
	c := newCache(t, options{Capacity: 10})
	var all []*watcher
	for i := range 1000 {
		all = append(all, mustWatch(t, c, watch{Start: watchcache.FromNow(), Key: fmt.Sprintf("k%d", i)}))
	}
	waits := make([]<-chan struct{}, len(all))
	for i, w := range all {
		waits[i] = w.Wait()
	}
	for range 1000 { // far more than history: nobody else lags
		apply(t, c, 0, "k7=1")
		pending(t, all[7])
	}
	for i, w := range all {
		if w.Err() != nil {
			t.Fatalf("watcher %d ended by another's events: %v", i, w.Err())
		}
		if i == 7 {
			continue
		}
		select {
		case <-waits[i]:
			t.Fatalf("watcher %d was woken by another's event", i)
		default:
		}
	}
	if got := c.Stats().MaxLag; got != 0 {
		t.Errorf("the largest lag is %d, want none", got)
	}
}

func TestFieldL1L2FiguresAreTheCachesOwnAndOfWhatWasTaken(t *testing.T) {
	one, two := newCache(t, options{}), newCache(t, options{})
	for i := range 100 {
		apply(t, one, 0, fmt.Sprintf("k%d=1", i))
	}
	for range 2 {
		mustWatch(t, one, watch{})
	}
	w := mustWatch(t, two, watch{Name: "w"})
	if one.Stats().Initial != 2 || two.Stats().Initial != 1 {
		t.Errorf("%d and %d watchers in their initial phase, want 2 and 1", one.Stats().Initial, two.Stats().Initial)
	}
	taker := mustWatch(t, one, watch{})
	n := uint64(0)
	for range taker.Events() {
		if n++; one.Stats().Deliveries != n {
			t.Errorf("%d deliveries at event %d", one.Stats().Deliveries, n)
		}
		if n == 10 {
			break
		}
	}
	if got := one.Stats().Deliveries; got != 10 {
		t.Errorf("%d deliveries after stopping at 10 of 100", got)
	}
	pending(t, w)
	apply(t, two, 0, "a=1 b=1")
	for info := range two.Watchers() {
		if info.Name != "w" || info.Phase != watchcache.PhaseStreaming || info.Lag != 2 || info.Delivered != 1 {
			t.Errorf("%+v, want w, streaming, two behind, one taken", info)
		}
	}
	if s := two.Stats(); s.Streaming != 1 || s.MaxLag != 2 || s.Objects != 2 || s.History != 2 {
		t.Errorf("%+v", s)
	}
}

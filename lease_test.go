package watchcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestNodesAreCopiedOnlyWhileSomebodyReads: a write changes nodes in place again
// when the last watcher that was in its initial phase has its state, has ended, or
// was parked; while there is another, and after Snapshot, it does not.
func TestNodesAreCopiedOnlyWhileSomebodyReads(t *testing.T) {
	ctx := context.Background()
	start := func(c *Cache[int]) *Watcher[int] {
		w, err := c.Watch(ctx, WatchOptions[int]{})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	drain := func(w *Watcher[int]) {
		for {
			if _, ok, err := w.TryNext(); !ok || err != nil {
				return
			}
		}
	}
	for name, tc := range map[string]struct {
		do     func(c *Cache[int])
		shared bool
	}{
		"nobody":          {func(c *Cache[int]) {}, false},
		"stopped":         {func(c *Cache[int]) { start(c).Stop() }, false},
		"synced":          {func(c *Cache[int]) { drain(start(c)) }, false},
		"parked":          {func(c *Cache[int]) { start(c).resync() }, false},
		"live":            {func(c *Cache[int]) { start(c) }, true},
		"begun":           {func(c *Cache[int]) { start(c).TryNext() }, true},
		"one of two":      {func(c *Cache[int]) { start(c); start(c).Stop() }, true},
		"older of two":    {func(c *Cache[int]) { start(c); c.Put("a", 1); start(c).Stop() }, true},
		"snapshot":        {func(c *Cache[int]) { c.Snapshot() }, true},
		"snapshot before": {func(c *Cache[int]) { c.Snapshot(); c.Put("a", 1); start(c).Stop() }, true},
		"past":            {func(c *Cache[int]) { c.Put("a", 1); c.SnapshotAt(1) }, true},
		"resynced": {func(c *Cache[int]) {
			w := start(c)
			w.resync()
			w.TryNext() // Reset: there is a snapshot again
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Options[int]{Indexes: map[string]func(string, int) []string{
				"value": func(_ string, v int) []string { return []string{fmt.Sprint(v)} },
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Put("a", 0)
			before := c.state.marks()
			tc.do(c)
			c.Put("b", 2)
			after := c.state.marks()
			if shared := after.tree != before.tree || after.indexes[0] != before.indexes[0]; shared != tc.shared {
				t.Errorf("copies nodes: %v, want %v", shared, tc.shared)
			}
		})
	}
}

// TestLeasesThatEndInTheMiddle: those of watchers that went before others did not
// pile up, and what they shared is given back with the next.
func TestLeasesThatEndInTheMiddle(t *testing.T) {
	c, err := New(Options[int]{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Put("a", 0)
	before := c.state.tree.Mark()
	var last *Watcher[int]
	for i := range 1000 {
		w, err := c.Watch(context.Background(), WatchOptions[int]{})
		if err != nil {
			t.Fatal(err)
		}
		c.Put("a", i)
		if last != nil {
			last.Stop()
		}
		last = w
		if n := len(c.leases.list); n > 16 {
			t.Fatalf("%d leases for two watchers", n)
		}
	}
	last.Stop()
	c.Put("a", 0)
	if now := c.state.tree.Mark(); now != before || len(c.leases.list) != 0 {
		t.Errorf("mark %d, want %d; %d leases", now, before, len(c.leases.list))
	}
}

// TestWhoReadsSeesOneRevision: all keys have the same value at each revision, and
// so they have in all that is read while watchers come and go, some of them ended
// in the middle of their initial state, and past states and snapshots are kept.
func TestWhoReadsSeesOneRevision(t *testing.T) {
	const keys = 240 // several runs of initial events, several leaves, and still made in place
	c, err := New(Options[int]{Capacity: 4 * keys})
	if err != nil {
		t.Fatal(err)
	}
	var changes []Change[int]
	for k := range bigCommit + 1 {
		changes = append(changes, Change[int]{Key: fmt.Sprintf("key-%04d", k%keys)})
	}
	write := func(value int) {
		for k := range changes {
			changes[k].Object = value
		}
		commit := Commit[int]{Changes: changes[:keys]}
		if value%16 == 15 { // made on a copy
			commit.Changes = changes
		}
		if _, err := c.Apply(commit); err != nil {
			t.Error(err)
		}
	}
	write(0)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			var kept []*Snapshot[int]
			for {
				select {
				case <-stop:
					return
				default:
				}
				w, err := c.Watch(context.Background(), WatchOptions[int]{})
				if err != nil {
					t.Error(err)
					return
				}
				var once sync.WaitGroup
				if r.IntN(2) == 0 {
					once.Go(w.Stop) // perhaps while a run is read
				}
				value, limit := -1, r.IntN(2*keys)
				for i := 0; i < limit; i++ {
					ev, err := w.Next(context.Background())
					if err != nil || ev.Type == Synced {
						break
					}
					if value == -1 {
						value = ev.Object
					}
					if ev.Object != value {
						t.Errorf("initial state with %d and %d", value, ev.Object)
						break
					}
				}
				w.Stop()
				once.Wait()
				if r.IntN(8) == 0 {
					kept = append(kept, c.Snapshot())
				}
				if len(kept) > 3 {
					kept = kept[1:]
				}
				for _, s := range kept {
					first, _ := s.Get("key-0000")
					for item := range s.All() {
						if item.Object != first.Object {
							t.Errorf("snapshot with %d and %d", first.Object, item.Object)
							break
						}
					}
				}
			}
		})
	}
	for value := range 1000 {
		write(value)
	}
	close(stop)
	all.Wait()
	c.Close() // not deferred: after a panic in a commit it would wait for ever
}

// TestRunIsNotReadAfterItsLease: a consumer that was about to read a run when its
// watcher was ended does not.
func TestRunIsNotReadAfterItsLease(t *testing.T) {
	c, err := New(Options[int]{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Put("a", 1)
	w, err := c.Watch(context.Background(), WatchOptions[int]{})
	if err != nil {
		t.Fatal(err)
	}
	inHand := w.initial.Load()
	w.Stop()
	if ev := inHand.peek(w.group.Selection()); ev != nil {
		t.Errorf("%v is read when nobody counts", ev)
	}
	c.Put("a", 2) // takes the nodes back
	if ev := inHand.peek(w.group.Selection()); ev != nil {
		t.Errorf("%v is read out of nodes that change", ev)
	}
}

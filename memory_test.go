package watchcache_test

import (
	"fmt"
	"testing"

	"github.com/watchcache/watchcache"
)

// Memory at scale. With -short, as where an emulator runs it, the numbers are a
// twentieth.

func atScale(n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

// TestMemoryBesideAThousandStalledWatchers: history's bound holds whatever is
// written, and who does not read keeps no more than the snapshot that it began.
func TestMemoryBesideAThousandStalledWatchers(t *testing.T) {
	const size, keys, bound = 10_240, 100, 20_000_000 // size: what 10 KB take in fact
	type object = *[size]byte
	c, err := watchcache.New(watchcache.Options[object]{MaxBytes: bound, Size: func(string, object) int { return size }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := func(n int) string { return fmt.Sprintf("key %d", n%keys) }
	empty := heap()
	for n := range keys {
		c.Put(key(n), new([size]byte))
	}
	limits := watchcache.StallLimits{InitialIdle: watchcache.NoLimit}
	for n := range 1000 {
		opts := watchcache.WatchOptions[object]{Stall: watchcache.Resync{StallLimits: limits}}
		if n%2 == 0 {
			opts.Start = watchcache.FromNow()
		}
		w, err := c.Watch(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		w.TryNext()
	}
	commits := atScale(1_000_000)
	const state, snapshot, watchers = keys * size, keys * size, 1000 * 1000
	most := uint64(bound + bound/10 + state + snapshot + watchers)
	for n := range commits {
		c.Put(key(n), new([size]byte))
		if (n+1)%(commits/5) == 0 {
			if now := heap(); now > empty+most {
				t.Fatalf("after %d commits the heap has grown by %d bytes, want at most %d", n+1, now-empty, most)
			}
		}
	}
	stats := c.Stats()
	if stats.Watchers != 1000 || stats.HistoryBytes > bound || stats.HistoryBytes < bound/2 {
		t.Errorf("%d watchers, %d bytes of history", stats.Watchers, stats.HistoryBytes)
	}
}

// TestMemoryAfterACommitOfAMillionKeys: history keeps it while it is the newest,
// and nothing of it after.
func TestMemoryAfterACommitOfAMillionKeys(t *testing.T) {
	n := atScale(1_000_000)
	c := newCache(t, options{Capacity: 100})
	changes := make([]change, n)
	for i := range changes {
		changes[i] = change{Key: fmt.Sprintf("key %d", i), Object: i}
	}
	commit := func() {
		if _, err := c.Apply(watchcache.Commit[int]{Changes: changes}); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			apply(t, c, 0, "small=1")
		}
	}
	commit() // makes the state
	w := mustWatch(t, c, watch{Start: watchcache.FromNow(), Prefix: "key 77", Stall: watchcache.Resync{}})
	before := heap()
	for range 2 {
		commit()
		if now := heap(); now > before+before/10 {
			t.Errorf("%d bytes after the commit, %d before", now, before)
		}
	}
	w.Stop()
}

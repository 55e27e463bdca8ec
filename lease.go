package watchcache

import (
	"math"
	"sync/atomic"
)

// lease says for how long a snapshot's nodes must stay as they are. While
// somebody may read them, a write copies those on its way; afterwards the state
// changes them in place again. So a watcher that starts and soon has its state, or
// goes, costs the writer nothing from then on.
//
// Watchers in their initial phase count, and so does a read under way, because the
// watcher may be ended from elsewhere in the middle of it. What was handed out to
// users counts for good: nobody tells when they let go.
//
// Who counts up holds the cache's lock, or counts already, or pins: only pinning
// races with revoke, which the writer does under the lock. Counting down happens
// before the revoke that sees zero, and with it all that was read.
type lease struct {
	readers atomic.Int64
	before  marks // the state's, before the snapshot was taken; guarded by Cache.mu
}

const (
	pinned  = math.MaxInt64 / 2 // counted for good
	revoked = math.MinInt64
)

// hold counts a watcher that has the snapshot; release takes that back.
func (l *lease) hold() { l.readers.Add(1) }

func (l *lease) release() {
	if l != nil {
		l.readers.Add(-1)
	}
}

// enter begins a read by a watcher that holds, or held, the snapshot. It returns
// false if the watcher has ended and the nodes may be changing.
func (l *lease) enter() bool {
	for {
		n := l.readers.Load()
		if n <= 0 {
			return false
		}
		if l.readers.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// pin has the nodes stay as they are for good. It returns false if they may be
// changing already.
func (l *lease) pin() bool {
	for {
		n := l.readers.Load()
		switch {
		case n < 0:
			return false
		case n >= pinned, l.readers.CompareAndSwap(n, n+pinned):
			return true
		}
	}
}

// revoke ends the lease, unless somebody counts.
func (l *lease) revoke() bool {
	return l.readers.Load() == 0 && l.readers.CompareAndSwap(0, revoked)
}

// leases are those of the snapshots that share nodes with the state, the newest
// last. Guarded by Cache.mu.
type leases struct {
	list  []*lease
	sweep int // the length at which ended ones are looked for before the last
}

func (ls *leases) add(l *lease) {
	if ls.list = append(ls.list, l); len(ls.list) >= max(ls.sweep, 16) {
		ls.compact()
		ls.sweep = 2 * len(ls.list)
	}
}

// compact removes the leases that have ended. Where one was, the next reaches back.
func (ls *leases) compact() {
	newest := len(ls.list) - 1 // not revoked here: its snapshot may be given out again
	kept := ls.list[:0]
	var before *marks
	for i, l := range ls.list {
		if before != nil {
			l.before, before = *before, nil
		}
		if i < newest && l.revoke() {
			before = &l.before
			continue
		}
		kept = append(kept, l)
	}
	clear(ls.list[len(kept):])
	ls.list = kept
}

// reclaim has the state change in place what the newest snapshots alone shared
// with it, if nobody reads them any more. The caller, in its turn, holds mu.
func (c *Cache[T]) reclaim() {
	ls := &c.leases
	for n := len(ls.list); n > 0; n-- {
		last := ls.list[n-1]
		if !last.revoke() {
			if last.readers.Load() >= pinned { // what is older has no say any more
				clear(ls.list)
				ls.list = nil
			}
			return
		}
		c.snapshot.Store(nil) // not to be given out any more
		c.state.reclaim(last.before)
		ls.list[n-1] = nil
		ls.list = ls.list[:n-1]
	}
}

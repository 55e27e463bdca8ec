package watchcache

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchcache/watchcache/internal/watchdog"
)

// rewound is the past states that were asked for lately, so that whoever pages
// over one revision pays for the way there once.
type rewound[T any] struct {
	// build lets one past state be made at a time: of many who ask for the same,
	// one makes it. It is not held by anybody who writes or watches.
	build sync.Mutex

	some   atomic.Bool // there are states: a writer looks before it takes mu
	mu     sync.Mutex  // a leaf: guards what follows, and stores to some
	states []*Snapshot[T]
	timer  watchdog.Timer
}

const (
	rewoundStates = 4           // the most kept
	rewoundIdle   = time.Minute // how long they are kept after the last use
)

// SnapshotAt returns the state as it was at a revision of the current epoch,
// exact in every item and its revision. It undoes history, in O(events undone),
// once: asked again for the same past revision, it returns the same snapshot while
// history reaches it, of the four revisions that were asked for last. It lets go of
// what was not asked for in a minute; after Close it does so no more.
//
// Errors: ErrExpired ([ExpiredError]) if history does not reach back so far, or if
// nothing is known of that revision because it lies in the hole of a relist;
// ErrFuture ([FutureError]); ErrNotReady.
func (c *Cache[T]) SnapshotAt(revision uint64) (*Snapshot[T], error) {
	if s, err := c.snapshotNear(revision); s != nil || err != nil {
		return s, err
	}
	c.rewound.build.Lock()
	defer c.rewound.build.Unlock()
	if s, err := c.snapshotNear(revision); s != nil || err != nil {
		return s, err
	}
	s, err := c.rewind(revision)
	if err != nil {
		return nil, err
	}
	c.rewound.keep(c, s)
	return s, nil
}

// snapshotNear returns the snapshot if it is the current one or was made before.
func (c *Cache[T]) snapshotNear(revision uint64) (*Snapshot[T], error) {
	c.mu.RLock()
	head, at := c.head, c.endOf(revision)
	err := c.resumable(at)
	c.mu.RUnlock()
	switch {
	case err != nil:
		return nil, err
	case revision == head.Revision:
		if s := c.Snapshot(); s.position.Revision == revision && s.position.Epoch == head.Epoch {
			return s, nil
		}
	}
	return c.rewound.find(c, at), nil
}

// endOf returns the position at which a revision ends, with all of its parts: nothing
// that history has at that revision lies beyond it. If that is not resumable, the
// revision is unknown. The caller holds mu.
func (c *Cache[T]) endOf(revision uint64) Position {
	if revision == c.head.Revision {
		return c.head
	}
	end := Position{Epoch: c.epoch, Revision: revision}
	next := c.ring.after(Position{Revision: revision, Part: math.MaxUint32})
	if next > c.ring.oldest.Load() {
		if chunk, i := c.ring.find(next - 1); chunk.slots[i].Revision == revision {
			end.Part = chunk.part(i)
		}
	}
	if revision == c.oldest.Revision {
		end.Part = max(end.Part, c.oldest.Part)
	}
	for i := range c.relists {
		if upTo := c.relists[i].upTo; upTo.revision == revision {
			end.Part = max(end.Part, upTo.part)
		}
	}
	return end
}

// rewind undoes history from the current state back to a revision.
func (c *Cache[T]) rewind(revision uint64) (*Snapshot[T], error) {
	c.mu.Lock()
	end := c.endOf(revision)
	if err := c.resumable(end); err != nil {
		c.mu.Unlock()
		return nil, err // history was trimmed, or numbered anew, meanwhile
	}
	now := c.snapshotLocked()
	now.lease.pin() // the past state shares its nodes
	head, oldest := c.ring.head.Load(), c.ring.oldest.Load()
	s := &Snapshot[T]{cache: c, state: now.state.copy(), position: end}
	holes := append([]relist(nil), c.relists...)
	c.mu.Unlock()
	expired := func() error {
		return &ExpiredError{Requested: s.position, Oldest: c.Oldest()}
	}
	for seq := head; ; seq-- {
		for n := len(holes) - 1; n >= 0 && holes[n].seq >= seq && holes[n].upTo.revision > revision; n-- {
			for _, t := range holes[n].touched {
				e, _ := s.state.get(t.key)
				e.revision = t.revision
				s.state.tree.Set(t.key, e)
			}
			holes = holes[:n]
		}
		if seq == oldest {
			break
		}
		chunk, i := c.ring.find(seq - 1)
		if chunk == nil {
			return nil, expired()
		}
		slot := &chunk.slots[i]
		if slot.Revision <= revision {
			break
		}
		var before *derived
		if chunk.derived != nil {
			before = chunk.derived[i].before
		}
		if slot.Type == Added {
			s.state.remove(slot.Key)
		} else {
			s.state.set(slot.Key, entry[T]{slot.Prev, chunk.priorRevision(i), before})
		}
	}
	return s, nil
}

func (r *rewound[T]) find(c *Cache[T], at Position) *Snapshot[T] {
	now := c.watchdog.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.states {
		if s.position.Epoch == at.Epoch && s.position.Revision == at.Revision {
			r.states = append(slices.Delete(r.states, i, i+1), s) // the last one used
			c.watchdog.Set(&r.timer, now+rewoundIdle)
			return s
		}
	}
	return nil
}

func (r *rewound[T]) keep(c *Cache[T], s *Snapshot[T]) {
	now := c.watchdog.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.states) == rewoundStates {
		r.states = append(r.states[:0:0], r.states[1:]...)
	}
	r.states = append(r.states, s)
	r.some.Store(true)
	c.watchdog.Set(&r.timer, now+rewoundIdle)
}

// drop forgets states before a position: history does not reach them any more.
func (r *rewound[T]) drop(before Position) {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*Snapshot[T]
	for _, s := range r.states {
		if s.position.compare(before.Revision, before.Part) >= 0 {
			kept = append(kept, s)
		}
	}
	r.states = kept
	r.some.Store(len(kept) > 0)
}

// forgetter is the watchdog's task that gives unused past states back.
type forgetter[T any] struct{ c *Cache[T] }

func (f forgetter[T]) OnTime(time.Duration) {
	f.c.rewound.mu.Lock()
	defer f.c.rewound.mu.Unlock()
	f.c.rewound.states = nil
	f.c.rewound.some.Store(false)
}

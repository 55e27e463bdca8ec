package watchcache

import (
	"fmt"
	"slices"
	"time"
)

// Trim raises Oldest to a position, as a store does that compacts its log.
// Watchers that still need what is dropped are judged as overrun. Positions
// below Oldest are no-ops. Any position up to the head will do, also one that no
// commit had; inside the hole of a relist it counts as the hole's end.
//
// Errors: ErrEpoch; ErrFuture ([FutureError]); ErrNotReady in Mirror mode before
// the first Replace; ErrClosed.
func (c *Cache[T]) Trim(before Position) error {
	c.turn.Lock()
	defer c.endTurn()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining: // watchers may still need what it would drop
		return ErrClosed
	case !c.ready:
		return ErrNotReady
	case before.Epoch != c.epoch:
		return fmt.Errorf("%w: %v, not %q", ErrEpoch, before, c.epoch)
	case before.compare(c.head.Revision, c.head.Part) > 0:
		return &FutureError{Requested: before, Head: c.head}
	case before.compare(c.oldest.Revision, c.oldest.Part) <= 0:
		return nil
	}
	if end := c.holeEnd(before.mark()); !end.IsZero() { // nothing inside a hole can be resumed
		before = end
	}
	c.dropTo(c.ring.after(before), before, true)
	return nil
}

// trim keeps history within its limits at the time now; the caller, in its turn,
// holds mu.
func (c *Cache[T]) trim(now time.Duration) {
	if cut := c.ring.cut(now); cut > c.ring.oldest.Load() {
		chunk, i := c.ring.find(cut - 1)
		c.dropTo(cut, Position{Epoch: c.epoch, Revision: chunk.slots[i].Revision, Part: chunk.part(i)}, false)
	}
	if c.ageArmed {
		return
	}
	if due, ok := c.ring.nextExpiry(); ok {
		c.ageArmed = true
		c.watchdog.Set(&c.ageTimer, due)
	}
}

// dropTo lets history begin with the event seq, the first after oldest. Whoever
// needs an earlier one is marked before it is gone: a consumer that does not find
// its event knows from its own mark that a verdict is under way.
func (c *Cache[T]) dropTo(seq uint64, oldest Position, exact bool) {
	c.registry.Overrun(seq, c.overrun)
	c.ring.drop(seq, exact)
	c.oldest = oldest
	c.relists = slices.DeleteFunc(c.relists, func(hole relist) bool { return hole.upTo.compare(oldest.Revision, oldest.Part) <= 0 })
	c.rewound.drop(oldest)
}

// ager is the watchdog's task that drops old events of an idle cache.
type ager[T any] struct{ c *Cache[T] }

func (a ager[T]) OnTime(now time.Duration) {
	c := a.c
	if !c.turn.TryLock() { // a writer is at work, and trims after it
		c.watchdog.Set(&c.ageTimer, now+c.opts.Retention/16+time.Millisecond)
		return
	}
	defer c.endTurn()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ageArmed = false
	c.trim(now)
	c.ring.drop(c.ring.oldest.Load(), true) // nobody may come by for long: leave nothing behind
}

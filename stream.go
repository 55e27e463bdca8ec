package watchcache

import (
	"github.com/watchcache/watchcache/internal/invariant"
)

// plain reports whether events go to this watcher as they are: that is what
// stream and streamInitial are for.
func (w *Watcher[T]) plain() bool {
	return w.filter == nil && w.coalesced == nil && w.c.opts.Clone == nil &&
		w.scan != nowhere && w.found.kind == unseen && w.part.Load() == 0 && w.attention.Load() == 0
}

// stream delivers history to a watcher that selects everything, for as long as
// nothing else is to be done: what next and took do, for the case that almost all
// events are. It returns false if the consumer has left.
//
// Nothing that it holds across a yield keeps a chunk alive.
func (w *Watcher[T]) stream(yield func(Event[T], error) bool) bool {
	ring, seq, taken := w.c.ring, w.scan, w.taken.Own()
	if w.currentPhase() != PhaseStreaming {
		return true
	}
	for {
		head := ring.head.Load()
		if w.unsynced {
			head = w.syncUntil - 1 // the last of these is left to took, which tells
		}
		if seq >= head || ring.parted.Load() {
			w.scan = seq
			return true
		}
		free := uint64(w.pace.credit) // events that need no look at the clock
		if free == 0 {
			w.report(taken + 1)
			free = uint64(w.pace.credit) + 1
		}
		at, end := ring.place(seq)
		stop := min(head, end, seq+free)
		w.pace.credit = uint32(free - (stop - seq))
		for seq < stop {
			// attention is read after head: who ends watchers and goes on to
			// publish events of another epoch, has set it before.
			c := at.Load()
			if c == nil || w.attention.Load() != 0 {
				w.scan = seq
				return true
			}
			slots, i := c.slots, seq-c.base
			if i >= uint64(len(slots)) {
				w.scan = seq
				return true
			}
			slot := &slots[i]
			seq++
			taken++
			w.member.Cursor.Set(seq)
			if !slot.More {
				w.position.Set(slot.Revision)
			}
			w.taken.Set(taken)
			if !yield(*slot, nil) {
				return false
			}
		}
	}
}

// next finds the next event to deliver; false: there is none now, or the watcher
// has ended. What it changes is the consumer's own: only took makes the event
// taken.
func (w *Watcher[T]) next(ev *Event[T]) bool {
	for {
		switch a := w.attention.Load(); {
		case a&ended != 0:
			return false
		case a&resync != 0:
			if w.restart(ev) {
				return true
			}
			continue
		case a&overrun != 0:
			return false // sleep until the verdict
		}
		if w.currentPhase() == PhaseInitial {
			if !w.nextInitial(ev) {
				continue // ended, parked, or about to be
			}
		} else {
			switch w.nextStreamed(ev) {
			case outcomeLost:
				// Not marked by a writer: it was overrun in its initial phase.
				if w.attention.Load()&(ended|resync|overrun) == 0 {
					w.judge(true, 0)
				}
				continue
			case outcomeNone:
				again, ok := w.nextMarker(ev)
				if again {
					continue
				}
				return ok
			}
		}
		// As in stream: an event of another epoch is not for this watcher.
		if w.attention.Load()&(ended|resync|overrun) != 0 {
			continue
		}
		if w.c.opts.Clone != nil && ev.Type <= Deleted {
			if err := guard("Options.Clone", func() { w.c.clone(ev) }); err != nil {
				w.end(err)
				continue
			}
		}
		return true
	}
}

// took makes the event that next found taken.
func (w *Watcher[T]) took() {
	t := &w.taking
	if t.moves {
		w.move(t.revision, t.part)
	}
	w.count()
	if t.synced {
		w.finishInitial()
	}
	w.member.Cursor.Set(t.cursor)
	w.checkSynced(t.cursor)
	if w.attention.Load()&drain != 0 && !w.endDrained() { // that was the last, perhaps, and nobody need come by again
		w.own.Fire()
	}
}

// count counts one event as taken.
func (w *Watcher[T]) count() {
	taken := w.taken.Own() + 1
	w.taken.Set(taken)
	if w.pace.credit == 0 {
		w.report(taken)
	} else {
		w.pace.credit--
	}
}

// move moves the position. See Position for the other side.
func (w *Watcher[T]) move(revision uint64, part uint32) {
	if invariant.Enabled {
		before := w.position.Own()
		invariant.Check(revision >= before || !w.placed.Load(), "position goes back from %d to %d", before, revision)
	}
	if part != 0 || w.part.Load() != 0 {
		w.moves.Add(1)
		w.position.Set(revision)
		w.part.Store(part)
		w.moves.Add(1)
		return
	}
	w.position.Set(revision)
}

// checkSynced closes Synced once a watcher that has no initial phase has taken
// all that there was at its start.
func (w *Watcher[T]) checkSynced(cursor uint64) {
	if !w.unsynced || w.currentPhase() == PhaseInitial {
		return
	}
	if _, ok := w.candidate(cursor, w.syncUntil); !ok {
		w.unsynced = false
		w.synced.Close()
	}
}

// limit returns the sequence number that the watcher may go up to.
func (w *Watcher[T]) limit() uint64 {
	head := w.c.ring.head.Load()
	if w.attention.Load()&drain != 0 {
		return min(head, w.draining.until)
	}
	return head
}

// candidate returns the first event from seq on, below limit, that may concern
// the watcher.
func (w *Watcher[T]) candidate(seq, limit uint64) (uint64, bool) {
	if w.group.All() {
		return seq, seq < limit
	}
	seq, ok := w.group.Next(seq)
	return seq, ok && seq < limit
}

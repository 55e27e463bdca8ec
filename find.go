package watchcache

import (
	"runtime/debug"
)

// kind is what a change in history is to one watcher.
type kind uint8

const (
	unseen   kind = iota // nothing
	enters               // Added
	stays                // Modified
	leaves               // Deleted, LeftFilter
	vanishes             // Deleted, Removed
)

type outcome uint8

const (
	outcomeNone  outcome = iota // nothing concerns the watcher now
	outcomeFound                // the event is filled
	outcomeLost                 // history has dropped what is next
)

// nextStreamed finds the next event in history.
func (w *Watcher[T]) nextStreamed(ev *Event[T]) outcome {
	if !w.met() {
		return outcomeNone
	}
	limit := w.limit()
	if w.coalesced != nil {
		return w.nextCoalesced(ev, limit)
	}
	if w.found.kind == unseen {
		if out := w.find(limit, false); out != outcomeFound {
			return out
		}
	}
	at := w.found
	c, i := w.c.ring.find(at.seq)
	if c == nil {
		return outcomeLost
	}
	*ev = c.slots[i]
	w.taking = taking{revision: ev.Revision, part: c.part(i), moves: true}
	more := false
	if ev.More { // is there another of this commit for the watcher?
		switch w.find(limit, true) {
		case outcomeLost:
			w.found = at
			return outcomeLost
		case outcomeFound:
			more = true
		}
	}
	if !more {
		w.found = found{}
		w.taking.cursor = w.scan
	} else {
		w.taking.cursor = w.found.seq
		w.taking.moves = false
	}
	shape(ev, at.kind, more)
	return outcomeFound
}

// find looks for the next event that concerns the watcher from scan on, with
// sameCommit only in the commit of the event in w.found.
func (w *Watcher[T]) find(limit uint64, sameCommit bool) outcome {
	revision, part := w.taking.revision, w.taking.part
	for {
		seq, ok := w.candidate(w.scan, limit)
		if !ok {
			if !sameCommit {
				w.scan = max(w.scan, limit)
				w.passed()
			}
			return outcomeNone
		}
		c, i := w.c.ring.find(seq)
		if c == nil {
			return outcomeLost
		}
		slot := &c.slots[i]
		if sameCommit && (slot.Revision != revision || c.part(i) != part) {
			return outcomeNone
		}
		k, failed := w.see(c, i)
		if failed {
			return outcomeLost // has ended
		}
		w.scan = seq + 1
		if k != unseen {
			w.found = found{seq, k}
			return outcomeFound
		}
		if sameCommit && !slot.More {
			return outcomeNone
		}
	}
}

// passed notes that nothing below scan concerns the watcher any more.
func (w *Watcher[T]) passed() {
	w.member.Cursor.Set(w.scan)
	w.checkSynced(w.scan)
}

// see tells what a change is to this watcher: the selection is evaluated on the
// old and the new object. failed: the filter panicked, and the watcher has ended.
func (w *Watcher[T]) see(c *chunk[T], i uint64) (k kind, failed bool) {
	slot := &c.slots[i]
	before, after := slot.Type != Added, slot.Type != Deleted
	if sel := w.group.Selection(); sel.Index != 0 {
		pair := c.derived[i]
		before = before && contains(pair.before.values(sel.Index-1), sel.Value)
		after = after && contains(pair.after.values(sel.Index-1), sel.Value)
	}
	if w.filter != nil {
		key, object, prev := slot.Key, slot.Object, slot.Prev
		if before {
			if before, failed = w.matches(key, prev); failed {
				return unseen, true
			}
		}
		if after {
			if after, failed = w.matches(key, object); failed {
				return unseen, true
			}
		}
	}
	switch {
	case before && after:
		return stays, false
	case after:
		return enters, false
	case before && slot.Type == Deleted:
		return vanishes, false
	case before:
		return leaves, false
	}
	return unseen, false
}

// matches asks the filter. A panic in it ends the watcher.
func (w *Watcher[T]) matches(key string, object T) (match, failed bool) {
	defer func() {
		if value := recover(); value != nil {
			failed = true
			w.end(&PanicError{Callback: "WatchOptions.Filter", Value: value, Stack: debug.Stack()})
		}
	}()
	match = w.filter(key, object)
	w.looked()
	return match, false
}

// shape makes a change in history the event that it is to the watcher. What is
// right already is not written: a whole event is copied faster than its parts.
func shape[T any](ev *Event[T], k kind, more bool) {
	switch {
	case k == enters && ev.Type != Added:
		var none T
		ev.Type, ev.Prev = Added, none
	case k == leaves:
		ev.Type, ev.Cause = Deleted, LeftFilter
	}
	if ev.More != more {
		ev.More = more
	}
}

// nextMarker finds what is due when there is nothing else: a bookmark, or the end
// of a watcher that drains. again: look once more.
func (w *Watcher[T]) nextMarker(ev *Event[T]) (again, ok bool) {
	a := w.attention.Load()
	if a&bookmark != 0 {
		c := w.c
		c.mu.RLock()
		head, seq := c.head, c.ring.head.Load()
		c.mu.RUnlock()
		if a&drain != 0 && w.draining.until < seq { // what came after is not for it
			head, seq = w.draining.at, w.draining.until
		}
		if w.scan == nowhere && w.met() { // met between the look for events and this one
			return true, false
		}
		if _, pending := w.candidate(w.scan, seq); pending {
			return true, false
		}
		w.attention.And(^uint32(bookmark))
		if w.start.compare(head.Revision, head.Part) < 0 && head.Epoch == *w.epoch {
			w.scan = max(w.scan, seq)
			*ev = Event[T]{Type: Bookmark, Revision: head.Revision, Time: c.opts.Clock.Now()}
			w.taking = taking{cursor: w.scan, revision: head.Revision, part: head.Part, moves: true}
			// As for any event: the numbering has not changed before this.
			return w.attention.Load()&ended != 0, true
		}
	}
	if a&drain != 0 {
		w.end(w.draining.err)
		return true, false
	}
	return false, false
}

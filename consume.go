package watchcache

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/watchcache/watchcache/internal/invariant"
	"github.com/watchcache/watchcache/internal/wakeup"
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

// Events returns the watcher's stream: every event, in order, once. It waits for
// events, and ends with one error, in the last pair, with the zero Event.
// Leaving the loop, by break, return or panic, stops the watcher.
//
// The sequence is single-use, and the watcher's one and only use from then on: a
// second one yields only ErrInUse, and does the watcher no harm.
func (w *Watcher[T]) Events() iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		if err := w.claim("Events", consumerForGood); err != nil {
			yield(Event[T]{}, err)
			return
		}
		finished := false
		defer func() {
			if !finished {
				w.Stop()
				w.settle()
			}
		}()
		var ev Event[T]
		for {
			if w.plain() && !w.streamInitial(yield) {
				return
			}
			if w.plain() && w.group.All() && !w.stream(yield) {
				return
			}
			switch {
			case w.next(&ev):
				w.took()
				delivered := ev
				ev = Event[T]{} // holds on to nothing while the consumer is busy
				if !yield(delivered, nil) {
					return
				}
			case w.attention.Load()&ended != 0:
				finished = true
				w.settle()
				yield(Event[T]{}, w.err)
				return
			default:
				w.sleep(nil)
			}
		}
	}
}

// Batches is Events by whole commits: each batch is what the watcher selects of
// one commit; or a run of initial events; or one Synced, Bookmark or Reset. The
// position moves, and the events count as taken, when the batch is yielded. A
// batch is valid during its yield only.
func (w *Watcher[T]) Batches() iter.Seq2[Batch[T], error] {
	return func(yield func(Batch[T], error) bool) {
		if err := w.claim("Batches", consumerForGood); err != nil {
			yield(Batch[T]{}, err)
			return
		}
		finished := false
		defer func() {
			if !finished {
				w.Stop()
				w.settle()
			}
		}()
		var run batchRun[T]
		for {
			switch {
			case run.fill(w):
				run.taken(w)
				if !yield(run.batch(), nil) {
					return
				}
				run.reset()
			case w.attention.Load()&ended != 0:
				finished = true
				w.settle()
				yield(Batch[T]{}, w.err)
				return
			default:
				w.sleep(nil)
			}
		}
	}
}

// batchRun collects events into one batch.
type batchRun[T any] struct {
	events []Event[T]
	last   taking
}

// fill collects the next batch; false: there is none now.
func (b *batchRun[T]) fill(w *Watcher[T]) bool {
	var ev Event[T]
	for w.next(&ev) {
		if ev.Type >= Synced && len(b.events) > 0 { // a marker is a batch of its own
			invariant.Check(ev.Type == Synced || ev.Type == Reset, "%v in the middle of a commit", ev.Type)
			if ev.Type == Synced {
				return true // found again: it was not taken
			}
			b.reset() // what was collected before the Reset is void
		}
		b.events = append(b.events, ev)
		b.last = w.taking
		switch {
		case ev.Initial:
			if len(b.events) == mostRun {
				return true
			}
		case !ev.More:
			return true
		}
	}
	b.reset() // overrun or ended in the middle: none of it was taken
	return false
}

// taken has the whole batch taken.
func (b *batchRun[T]) taken(w *Watcher[T]) {
	w.taking = b.last
	for range len(b.events) - 1 {
		w.count()
	}
	w.took()
}

func (b *batchRun[T]) batch() Batch[T] {
	revision := b.last.revision
	if first := b.events[0]; first.Type >= Synced {
		revision = first.Revision
	}
	return Batch[T]{Revision: revision, Events: b.events}
}

// reset clears what was yielded; the buffer that one huge commit made is given
// back.
func (b *batchRun[T]) reset() {
	clear(b.events)
	if cap(b.events) > 1024 {
		b.events = nil
	}
	b.events = b.events[:0]
}

// Next waits for the next event. ctx bounds this call only: when it ends, Next
// returns its cause, and the watcher goes on. After the watcher has ended, every
// call returns the reason.
//
// Errors: the reason for the end; ErrInUse while another consumer is at it, and
// after Events, Batches or Channel; the context's cause.
func (w *Watcher[T]) Next(ctx context.Context) (Event[T], error) {
	if err := w.claim("Next", consumerBusy); err != nil {
		return Event[T]{}, err
	}
	defer w.busy.Store(consumerIdle)
	var ev Event[T]
	for {
		if w.next(&ev) {
			w.took()
			return ev, nil
		}
		if w.attention.Load()&ended != 0 {
			w.settle()
			return Event[T]{}, w.err
		}
		if !w.sleep(ctx.Done()) {
			return Event[T]{}, context.Cause(ctx)
		}
	}
}

// TryNext is Next that does not wait: it returns false if there is nothing to
// take now.
//
// Errors: those of Next.
func (w *Watcher[T]) TryNext() (Event[T], bool, error) {
	if err := w.claim("TryNext", consumerBusy); err != nil {
		return Event[T]{}, false, err
	}
	defer w.busy.Store(consumerIdle)
	var ev Event[T]
	if w.next(&ev) {
		w.took()
		return ev, true, nil
	}
	if w.attention.Load()&ended != 0 {
		w.settle()
		return Event[T]{}, false, w.err
	}
	return Event[T]{}, false, nil
}

// Wait returns a channel that is closed when there is something to take, or the
// watcher has ended; it is closed already if that is so now. With a Filter it may
// also be closed for a change that the filter rejects: TryNext tells.
func (w *Watcher[T]) Wait() <-chan struct{} {
	own := w.own.Arm()
	w.group.WakeOne(&w.own)
	if w.ready() {
		return wakeup.Closed()
	}
	return own
}

// claim makes the caller the watcher's consumer, or says that it has one.
func (w *Watcher[T]) claim(method string, as uint32) error {
	if !w.busy.CompareAndSwap(consumerIdle, as) {
		return fmt.Errorf("%w: %s: the watcher has its consumer", ErrInUse, method)
	}
	return nil
}

// sleep waits until it is worth to look again. It returns false if done was
// closed first.
func (w *Watcher[T]) sleep(done <-chan struct{}) bool {
	wake, own := w.group.Wake.Arm(), w.own.Arm()
	if w.ready() {
		return true
	}
	select {
	case <-wake:
	case <-own:
	case <-done:
		return false
	}
	return true
}

// ready reports whether next may find something.
func (w *Watcher[T]) ready() bool {
	a := w.attention.Load()
	switch {
	case a&(ended|resync) != 0:
		return true
	case a&overrun != 0:
		return false
	case w.initial.Load() != nil, w.found.kind != unseen, w.coalesced != nil && w.coalesced.pending():
		return true
	}
	_, ok := w.candidate(w.scan, w.limit())
	return ok || a&(drain|bookmark) != 0
}

// plain reports whether events go to this watcher as they are: that is what
// stream and streamInitial are for.
func (w *Watcher[T]) plain() bool {
	return w.filter == nil && w.coalesced == nil && w.c.opts.Clone == nil && !w.floor &&
		w.found.kind == unseen && w.attention.Load() == 0
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
			if seq >= w.syncUntil {
				w.checkSynced(seq)
			} else {
				head = w.syncUntil
			}
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
			c := at.Load()
			// attention is read after head: who ends watchers and goes on to
			// publish events of another epoch, has set it before.
			if c == nil || seq-c.base >= uint64(len(c.slots)) || w.attention.Load() != 0 {
				w.scan = seq
				return true
			}
			slot := &c.slots[seq-c.base]
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
	if t.synced {
		w.finishInitial()
	}
	w.member.Cursor.Set(t.cursor)
	w.count()
	w.checkSynced(t.cursor)
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
		w.part.Store(0)
		w.position.Set(revision)
		w.part.Store(part)
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

type outcome uint8

const (
	outcomeNone  outcome = iota // nothing concerns the watcher now
	outcomeFound                // the event is filled
	outcomeLost                 // history has dropped what is next
)

// nextStreamed finds the next event in history.
func (w *Watcher[T]) nextStreamed(ev *Event[T]) outcome {
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
	if w.floor {
		if w.start.compare(slot.Revision, c.part(i)) >= 0 {
			return unseen, false
		}
		w.floor = false
	}
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
	return w.filter(key, object), false
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
		partly := a&drain != 0 && w.draining.until < seq
		if _, pending := w.candidate(w.scan, seq); pending && !partly {
			return true, false
		}
		w.attention.And(^uint32(bookmark))
		if !partly && w.start.compare(head.Revision, head.Part) < 0 && head.Epoch == *w.epoch {
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

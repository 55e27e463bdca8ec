package watchcache

import (
	"time"

	"github.com/watchcache/watchcache/internal/ranges"
	"github.com/watchcache/watchcache/internal/registry"
)

// initial is what a watcher has in its initial phase. All of it hangs on
// Watcher.initial alone, which whoever ends the watcher clears. The consumer
// loads that pointer anew for each item.
type initial[T any] struct {
	snapshot *Snapshot[T]
	began    time.Time // what initial events carry
	over     bool      // all items were delivered: Synced is next

	// The consumer takes items out of the snapshot in runs, as events; a run
	// begins where the last one ended. To step an iterator for each item would
	// cost three times as much.
	run     []Event[T]
	at      int    // the next in run
	last    string // the last key of the run
	begun   bool
	drained bool // there is no further run
}

// How many events make a run: it grows, so that a small state costs little, and
// in a large one the way back to where a run ended counts little.
const (
	firstRun = 16
	mostRun  = 256
)

// begin begins an initial phase; the caller holds mu.
func (w *Watcher[T]) begin(s *Snapshot[T], now time.Time) {
	s.lease.hold()
	w.initial.Store(&initial[T]{snapshot: s, began: now})
}

// forget lets go of the snapshot, if there is one; the caller holds mu.
func (w *Watcher[T]) forget() {
	if p := w.initial.Swap(nil); p != nil {
		p.snapshot.lease.release()
	}
}

// peek returns the next item that the selection selects, the filter left aside,
// as an event; nil if there is none, or the watcher has ended. It stays the next
// until at is moved.
func (p *initial[T]) peek(sel registry.Selection) *Event[T] {
	if p.at == len(p.run) {
		if p.drained {
			return nil
		}
		if !p.snapshot.lease.enter() {
			return nil
		}
		p.fill(sel)
		p.snapshot.lease.release()
		if len(p.run) == 0 {
			return nil
		}
	}
	return &p.run[p.at]
}

// fill reads the next run.
func (p *initial[T]) fill(sel registry.Selection) {
	s := p.snapshot.state
	if size := min(max(firstRun, 4*cap(p.run)), mostRun, s.len()); size > cap(p.run) {
		p.run = make([]Event[T], 0, size)
	}
	clear(p.run)
	p.run, p.at = p.run[:0], 0
	in := sel.Range
	if sel.Key != "" {
		in = ranges.Range{From: sel.Key, To: sel.Key + "\x00"}
	}
	from := in.From
	if p.begun {
		from = p.last
	}
	p.drained = true
	if sel.Index == 0 {
		p.fillByKey(ranges.Range{From: from, To: in.To})
	} else {
		p.fillByIndex(sel, ranges.Range{From: from, To: in.To})
	}
	if p.begun = true; len(p.run) > 0 {
		p.last = p.run[len(p.run)-1].Key
	}
}

func (p *initial[T]) fillByKey(in ranges.Range) {
	c := p.snapshot.state.tree.Cursor()
	for ok := c.Seek(in.From); ok; ok = c.NextRun() {
		items := c.Run()
		if p.begun && len(p.run) == 0 && items[0].Key == p.last { // where the last run ended
			items = items[1:]
		}
		for i := range items {
			if in.To != "" && items[i].Key >= in.To {
				return
			}
			if !p.add(items[i].Key, &items[i].Value) {
				return
			}
		}
	}
}

func (p *initial[T]) fillByIndex(sel registry.Selection, in ranges.Range) {
	s := p.snapshot.state
	for w := s.indexWalk(sel.Index-1, sel.Value, in); w.next(); {
		key := w.key()
		if p.begun && key == p.last {
			continue
		}
		if e, _ := s.get(key); !p.add(key, &e) {
			return
		}
	}
}

// add puts an item into the run; false: there is one that has no room.
func (p *initial[T]) add(key string, e *entry[T]) bool {
	if len(p.run) == cap(p.run) {
		p.drained = false
		return false
	}
	// Field by field into the cleared slot: a whole event would be built
	// elsewhere and copied, at twice the time.
	p.run = p.run[:len(p.run)+1]
	ev := &p.run[len(p.run)-1]
	ev.Type, ev.Initial, ev.Time = Added, true, p.began
	ev.Key, ev.Object, ev.Revision = key, e.object, e.revision
	return true
}

// streamInitial delivers initial events for as long as nothing else is to be
// done: what next and took do, for a watcher without filter. It returns false if
// the consumer has left.
func (w *Watcher[T]) streamInitial(yield func(Event[T], error) bool) bool {
	selection := w.group.Selection()
	for {
		p := w.initial.Load()
		if p == nil || p.over || w.attention.Load() != 0 {
			return true
		}
		ev := p.peek(selection)
		if ev == nil {
			return true
		}
		p.at++
		w.count()
		if !yield(*ev, nil) {
			return false
		}
	}
}

// nextInitial finds the next event of the initial phase. It returns false if
// there is none to be had: the watcher was ended or parked meanwhile.
func (w *Watcher[T]) nextInitial(ev *Event[T]) bool {
	for {
		p := w.initial.Load()
		if p == nil {
			return false
		}
		if p.over {
			w.fillSynced(ev, p.snapshot.position)
			return true
		}
		item := p.peek(w.group.Selection())
		if item == nil {
			// The snapshot is not needed any more; its position is.
			over := &initial[T]{over: true, snapshot: &Snapshot[T]{position: p.snapshot.position}}
			if w.initial.CompareAndSwap(p, over) {
				p.snapshot.lease.release()
			}
			continue
		}
		p.at++
		if w.filter != nil {
			match, failed := w.matches(item.Key, item.Object)
			if failed {
				return false
			}
			if !match {
				continue
			}
		}
		*ev = *item
		w.taking = taking{cursor: w.scan, revision: p.snapshot.position.Revision}
		return true
	}
}

func (w *Watcher[T]) fillSynced(ev *Event[T], at Position) {
	*ev = Event[T]{Type: Synced, Revision: at.Revision, Time: w.c.opts.Clock.Now()}
	w.taking = taking{cursor: w.scan, revision: at.Revision, part: at.Part, moves: true, synced: true}
}

// finishInitial is what taking Synced does.
func (w *Watcher[T]) finishInitial() {
	c := w.c
	w.start = mark{w.taking.revision, w.taking.part}
	ok := true
	w.placed.Store(true) // Synced's position can be resumed, whatever happens now
	c.mu.Lock()
	if w.initial.Load() != nil { // neither ended nor parked meanwhile
		w.forget()
		w.phase.Store(uint32(PhaseStreaming))
		if ok = c.registry.Stream(&w.member, c.ring.head.Load(), c.ring.oldest.Load()); !ok {
			w.attention.Or(overrun) // before anybody could find what is left
		}
	}
	c.mu.Unlock()
	if w.unsynced {
		w.unsynced = false
		w.synced.Close()
	}
	w.armAfter(c.watchdog.Now(), w.rules.limits.StreamIdle, PhaseStreaming)
	if !ok {
		w.judge(true, 0) // history was shorter than the initial phase long
	}
}

// restart begins a new initial phase, for a consumer that comes back after
// VerdictResync.
func (w *Watcher[T]) restart(ev *Event[T]) bool {
	c := w.c
	now := c.opts.Clock.Now()
	c.mu.Lock()
	if w.attention.Load()&(ended|resync) != resync {
		c.mu.Unlock()
		return false
	}
	head := c.ring.head.Load()
	snapshot := c.snapshotLocked()
	w.begin(snapshot, now)
	w.placed.Store(false)
	w.member.Cursor.Set(head)
	w.takenAt.Store(int64(c.watchdog.Since(now)))
	w.attention.And(^uint32(resync | bookmark))
	c.mu.Unlock()
	w.scan = head
	w.found = found{}
	if w.coalesced != nil {
		*w.coalesced = coalesced{}
	}
	w.armAfter(c.watchdog.Since(now), w.rules.limits.InitialIdle, PhaseInitial)
	*ev = Event[T]{Type: Reset, Revision: snapshot.position.Revision, Time: now}
	w.taking = taking{cursor: head}
	return true
}

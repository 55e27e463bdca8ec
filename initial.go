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
	snapshot  *Snapshot[T]
	selection registry.Selection
	began     time.Time // what initial events carry
	byKey     walk[T]
	byIndex   indexWalk
	begun     bool
	over      bool // all items were delivered: Synced is next
}

// next returns the next item that the selection selects, the filter left aside.
func (p *initial[T]) next() (key string, e entry[T], ok bool) {
	s, sel := p.snapshot.state, p.selection
	if !p.begun {
		p.begun = true
		in := sel.Range
		if sel.Key != "" {
			in = ranges.Range{From: sel.Key, To: sel.Key + "\x00"}
		}
		if sel.Index != 0 {
			p.byIndex = s.indexWalk(sel.Index-1, sel.Value, in)
		} else {
			p.byKey = s.walk(in)
		}
	}
	if sel.Index == 0 {
		if !p.byKey.next() {
			return "", e, false
		}
		return p.byKey.key(), p.byKey.entry(), true
	}
	if !p.byIndex.next() {
		return "", e, false
	}
	e, _ = s.get(p.byIndex.key())
	return p.byIndex.key(), e, true
}

// nextInitial finds the next event of the initial phase. It returns false if
// there is none to be had: the watcher was ended or parked meanwhile.
func (w *Watcher[T]) nextInitial(ev *Event[T]) bool {
	for skipped := 1; ; skipped++ {
		p := w.initial.Load()
		if p == nil {
			return false
		}
		if p.over {
			w.fillSynced(ev, p.snapshot.position)
			return true
		}
		key, e, ok := p.next()
		if !ok {
			// The snapshot is not needed any more; its position is.
			over := &initial[T]{over: true, snapshot: &Snapshot[T]{position: p.snapshot.position}}
			w.initial.CompareAndSwap(p, over)
			continue
		}
		if w.filter != nil {
			match, failed := w.matches(key, e.object)
			if failed {
				return false
			}
			if !match {
				if skipped%1024 == 0 { // a consumer that searches is not stalled
					w.takenAt.Store(int64(w.c.watchdog.Now()))
				}
				continue
			}
		}
		*ev = Event[T]{Type: Added, Key: key, Object: e.object, Revision: e.revision, Initial: true, Time: p.began}
		w.taking = taking{cursor: w.scan}
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
	w.start.Revision, w.start.Part = w.taking.revision, w.taking.part
	c.mu.Lock()
	if w.initial.Load() != nil { // neither ended nor parked meanwhile
		w.initial.Store(nil)
		w.placed.Store(true)
		w.phase.Store(uint32(PhaseStreaming))
		c.registry.Stream(&w.member, c.ring.head.Load())
	}
	c.mu.Unlock()
	if w.unsynced {
		w.unsynced = false
		w.synced.Close()
	}
	if w.limits.StreamIdle > 0 {
		w.arm(c.watchdog.Now())
	}
}

// restart begins a new initial phase, for a consumer that comes back after
// VerdictResync.
func (w *Watcher[T]) restart(ev *Event[T]) bool {
	c := w.c
	c.mu.Lock()
	if w.attention.Load()&(ended|resync) != resync {
		c.mu.Unlock()
		return false
	}
	now := c.opts.Clock.Now()
	head := c.ring.head.Load()
	snapshot := c.snapshotLocked()
	w.initial.Store(&initial[T]{snapshot: snapshot, selection: w.group.Selection(), began: now})
	w.placed.Store(false)
	w.member.Cursor.Set(head)
	w.takenAt.Store(int64(c.watchdog.Since(now)))
	w.attention.And(^uint32(resync | bookmark))
	c.mu.Unlock()
	w.scan = head
	w.found, w.floor = found{}, false
	if w.coalesced != nil {
		*w.coalesced = coalesced{}
	}
	w.arm(c.watchdog.Since(now))
	*ev = Event[T]{Type: Reset, Revision: snapshot.position.Revision, Time: now}
	w.taking = taking{cursor: head}
	return true
}

package watchcache

import (
	"math"
	"sync/atomic"
)

// ahead is a client that was allowed to be ahead of the cache. Until the head has
// passed its position nothing concerns it: it does not lag and cannot be overrun.
// Its cursor stands at nowhere, and the cursor is the writer's meanwhile: it
// becomes the consumer's, as all others are, with the store of reached.
type ahead[T any] struct {
	watcher *Watcher[T]
	at      mark          // where the client is
	reached atomic.Uint64 // where its stream begins in history, plus one; 0: not reached yet
	place   int32         // in Cache.ahead; guarded by Cache.mu
}

// nowhere is beyond all of history: the cursor of a watcher whose client is ahead,
// and its scan until its consumer has found out that the client was met.
const nowhere uint64 = math.MaxUint64

// Key and Place make those who are ahead items of a heap.
func (a *ahead[T]) Key() uint64   { return a.at.revision }
func (a *ahead[T]) Place() *int32 { return &a.place }

// meet lets those whose position a commit passes go on with that commit, whose
// events are about to be in history from seq on. The caller, a writer, holds mu.
func (c *Cache[T]) meet(revision uint64, part uint32, seq uint64) {
	for c.ahead.Len() > 0 && c.ahead.Min().at.revision < revision {
		c.ahead.Min().meet(seq)
	}
	if part == 0 || c.ahead.Len() == 0 || c.ahead.Min().at.revision > revision {
		return
	}
	var met []*ahead[T]
	for _, a := range c.ahead.All() {
		if a.at.compare(revision, part) < 0 {
			met = append(met, a)
		}
	}
	for _, a := range met {
		a.meet(seq)
	}
}

func (a *ahead[T]) meet(seq uint64) {
	c, w := a.watcher.c, a.watcher
	c.ahead.Remove(a)
	w.member.Cursor.Set(seq)
	c.registry.Stream(&w.member, seq, c.ring.oldest.Load())
	a.reached.Store(seq + 1)
}

// met reports whether the watcher's client is, by now, not ahead any more. It is
// the consumer's.
func (w *Watcher[T]) met() bool {
	if w.scan != nowhere {
		return true
	}
	reached := w.ahead.reached.Load()
	if reached == 0 {
		return false
	}
	w.scan = reached - 1
	return true
}

package watchcache

import (
	"iter"

	"github.com/watchcache/watchcache/internal/invariant"
)

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
		w.looked()
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

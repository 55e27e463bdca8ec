package watchcache

import (
	"context"
	"fmt"
	"iter"

	"github.com/watchcache/watchcache/internal/wakeup"
)

// Events returns the watcher's stream: every event, in order, once. It waits for
// events, and ends with one error, in the last pair, with the zero Event.
// Leaving the loop, by break, return or panic, stops the watcher. An event is taken when
// the loop's body gets it: Position includes it then, so save a position after what
// the event says was done.
//
// The sequence is single-use, and the watcher's one and only use from then on.
//
// Errors: the reason for the end, as of Err; only ErrInUse while or after another
// consumer is at it, which does the watcher no harm.
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

// Next waits for the next event. ctx bounds this call only: when it ends, Next
// returns its cause, and the watcher goes on. After the watcher has ended, every
// call returns the reason.
//
// Errors: the reason for the end, as of Err; ErrInUse while another consumer is at
// it, and for good after Events, Batches, Channel, Pipe or PipeBatches; the
// context's cause.
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
// Errors: those of Next, but for the context's.
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
// watcher has ended; it is closed already if that is so now. It may also be closed
// for what turns out to be nothing: a change that a Filter rejects, changes that Coalesce
// joins to none, a bookmark that would say nothing new. TryNext tells.
func (w *Watcher[T]) Wait() <-chan struct{} {
	own := w.own.Arm()
	w.group.WakeOne(&w.own)
	if w.attention.Load()&ended != 0 {
		w.group.Forget(&w.own) // who ended it may have done so before WakeOne
	}
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

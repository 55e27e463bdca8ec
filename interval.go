package watchcache

import (
	"iter"

	"github.com/watchcache/watchcache/internal/ranges"
)

// Interval is a bounded run of events: a part of history, from [Cache.Since], or
// a snapshot as initial events, from [Snapshot.Interval]. It may be used
// concurrently, and any number of times.
//
// An interval over history pins none of it: it fails when history drops what it
// has yet to deliver. An interval over a snapshot keeps the snapshot.
type Interval[T any] struct {
	cache       *Cache[T]
	snapshot    *Snapshot[T] // nil for an interval over history
	from, to    uint64       // sequence numbers in history
	after, upTo Position
}

// Bounds returns the positions that the interval lies between: its events are
// those after the first and up to the second. A snapshot's interval begins at
// the zero Position.
func (i *Interval[T]) Bounds() (after, upTo Position) { return i.after, i.upTo }

// Len returns how many events All delivers.
func (i *Interval[T]) Len() int {
	if i.snapshot != nil {
		return i.snapshot.Len() + 1
	}
	return int(i.to - i.from)
}

// All returns the events, in order. The sequence is reusable. If history has
// dropped the next event, the last pair is an [ExpiredError], with the zero
// Event; nothing is skipped. That may be in the middle of a commit: More tells
// whether the commit of the last event is whole.
func (i *Interval[T]) All() iter.Seq2[Event[T], error] {
	if i.snapshot != nil {
		return i.initial
	}
	return i.history
}

func (i *Interval[T]) history(yield func(Event[T], error) bool) {
	c, position := i.cache, i.after
	for seq := i.from; seq < i.to; seq++ {
		chunk, at := c.ring.find(seq)
		if chunk == nil {
			yield(Event[T]{}, &ExpiredError{Requested: position, Oldest: c.Oldest()})
			return
		}
		if slot := &chunk.slots[at]; !slot.More {
			position.Revision, position.Part = slot.Revision, chunk.part(at)
		}
		if c.opts.Clone == nil {
			if !yield(chunk.slots[at], nil) {
				return
			}
			continue
		}
		event := chunk.slots[at]
		c.clone(&event)
		if !yield(event, nil) {
			return
		}
	}
}

func (i *Interval[T]) initial(yield func(Event[T], error) bool) {
	now := i.cache.opts.Clock.Now()
	for w := i.snapshot.state.walk(ranges.Range{}); w.next(); {
		item := i.cache.item(w.key(), w.value())
		event := Event[T]{Type: Added, Key: item.Key, Object: item.Object, Revision: item.Revision, Initial: true, Time: now}
		if !yield(event, nil) {
			return
		}
	}
	yield(Event[T]{Type: Synced, Revision: i.upTo.Revision, Time: now}, nil)
}

// clone gives an event objects of its own.
func (c *Cache[T]) clone(event *Event[T]) {
	event.Object = c.opts.Clone(event.Object)
	if event.Type == Modified || event.Type == Deleted {
		event.Prev = c.opts.Clone(event.Prev)
	}
}

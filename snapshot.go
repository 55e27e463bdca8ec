package watchcache

import (
	"fmt"
	"iter"
	"slices"

	"github.com/watchcache/watchcache/internal/ranges"
)

// Snapshot is the whole state at one revision. It never changes, and all its
// methods may be called concurrently and for as long as it is kept; it keeps its
// objects alive. Its sequences are reusable, in byte order of the keys.
//
// Objects are shared and read-only, unless Options.Clone is set.
type Snapshot[T any] struct {
	cache    *Cache[T]
	state    state[T]
	position Position
	lease    *lease // nil: of a state that shares nothing with the cache's, or pinned
}

// Position returns the position that the snapshot shows: a watcher that starts
// after it misses nothing.
func (s *Snapshot[T]) Position() Position { return s.position }

// Len returns the number of keys.
func (s *Snapshot[T]) Len() int { return s.state.len() }

// Get returns the item of a key, in O(log n).
func (s *Snapshot[T]) Get(key string) (Item[T], bool) {
	e, ok := s.state.get(key)
	if !ok {
		return Item[T]{}, false
	}
	return s.cache.item(key, e), true
}

// All returns every item.
func (s *Snapshot[T]) All() iter.Seq[Item[T]] { return s.forward(ranges.Range{}) }

// Backward returns every item, the last key first.
func (s *Snapshot[T]) Backward() iter.Seq[Item[T]] { return s.backward(ranges.Range{}) }

// Prefix returns the items whose keys begin with prefix.
func (s *Snapshot[T]) Prefix(prefix string) iter.Seq[Item[T]] {
	return s.forward(ranges.OfPrefix(prefix))
}

// PrefixBackward is Prefix, the last key first.
func (s *Snapshot[T]) PrefixBackward(prefix string) iter.Seq[Item[T]] {
	return s.backward(ranges.OfPrefix(prefix))
}

// Range returns the items whose keys are in [from, to). An empty border is open.
// Pages are read by starting again at the last key plus "\x00".
func (s *Snapshot[T]) Range(from, to string) iter.Seq[Item[T]] {
	return s.forward(ranges.Range{From: from, To: to})
}

// RangeBackward is Range, the last key first.
func (s *Snapshot[T]) RangeBackward(from, to string) iter.Seq[Item[T]] {
	return s.backward(ranges.Range{From: from, To: to})
}

// Index returns the items that have value in the index called name. It panics on
// a name that is not one of Options.Indexes; see HasIndex.
func (s *Snapshot[T]) Index(name, value string) iter.Seq[Item[T]] {
	return s.indexed(name, value, (*indexWalk).next)
}

// IndexBackward is Index, the last key first.
func (s *Snapshot[T]) IndexBackward(name, value string) iter.Seq[Item[T]] {
	return s.indexed(name, value, (*indexWalk).prev)
}

// HasIndex reports whether there is an index of that name.
func (s *Snapshot[T]) HasIndex(name string) bool {
	return slices.Contains(s.cache.indexNames, name)
}

// Count returns how many keys are in [from, to), without visiting them. An empty
// border is open.
func (s *Snapshot[T]) Count(from, to string) int {
	end := s.state.len()
	if to != "" {
		end = s.state.rank(to)
	}
	if from == "" {
		return end
	}
	return max(0, end-s.state.rank(from))
}

// Interval returns the snapshot as events: every item Added, with Initial set,
// and Synced at its position.
func (s *Snapshot[T]) Interval() *Interval[T] {
	return &Interval[T]{cache: s.cache, snapshot: s, upTo: s.position}
}

func (s *Snapshot[T]) forward(in ranges.Range) iter.Seq[Item[T]] {
	return func(yield func(Item[T]) bool) {
		for w := s.state.walk(in); w.next(); {
			if !yield(s.cache.item(w.key(), w.value())) {
				return
			}
		}
	}
}

func (s *Snapshot[T]) backward(in ranges.Range) iter.Seq[Item[T]] {
	return func(yield func(Item[T]) bool) {
		for w := s.state.walk(in); w.prev(); {
			if !yield(s.cache.item(w.key(), w.value())) {
				return
			}
		}
	}
}

func (s *Snapshot[T]) indexed(name, value string, step func(*indexWalk) bool) iter.Seq[Item[T]] {
	index := slices.Index(s.cache.indexNames, name)
	if index < 0 {
		panic(fmt.Sprintf("watchcache: unknown index %q", name))
	}
	return func(yield func(Item[T]) bool) {
		for w := s.state.indexWalk(index, value, ranges.Range{}); step(&w); {
			e, _ := s.state.get(w.key())
			if !yield(s.cache.item(w.key(), e)) {
				return
			}
		}
	}
}

// item is an entry as a reader gets it.
func (c *Cache[T]) item(key string, e entry[T]) Item[T] {
	if c.opts.Clone != nil {
		e.object = c.opts.Clone(e.object)
	}
	return Item[T]{Key: key, Object: e.object, Revision: e.revision}
}

package watchcache

import (
	"encoding/binary"

	"github.com/watchcache/watchcache/internal/cowtree"
	"github.com/watchcache/watchcache/internal/ranges"
)

// state is the current objects and their indexes. Copies share what neither has
// changed since. Whoever changes a state is alone with it.
type state[T any] struct {
	tree *cowtree.Tree[entry[T]]
	// indexes, by index number, have a line for each value of each key: see
	// indexLine. The object itself stands in the tree only, so that a write that
	// changes no index value touches no index.
	indexes []*cowtree.Tree[struct{}]
}

// indexLine is a key behind a value. The value's length comes first, so that no
// value's lines begin with those of another, whatever bytes the two have.
func indexLine(value, key string) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(len(value)))) + value + key
}

func newState[T any](indexes int) state[T] {
	s := state[T]{tree: new(cowtree.Tree[entry[T]]), indexes: make([]*cowtree.Tree[struct{}], indexes)}
	for i := range s.indexes {
		s.indexes[i] = new(cowtree.Tree[struct{}])
	}
	return s
}

// copy returns a state that changes independently, in O(1). It changes marks in
// s, so that it needs the cache's lock like a write.
func (s state[T]) copy() state[T] {
	c := state[T]{tree: s.tree.Copy()}
	if len(s.indexes) > 0 {
		c.indexes = make([]*cowtree.Tree[struct{}], len(s.indexes))
		for i, index := range s.indexes {
			c.indexes[i] = index.Copy()
		}
	}
	return c
}

// marks say what a state shares with the copies that were made of it.
type marks struct {
	tree    uint64
	indexes []uint64
}

// marks returns what tells reclaim of the copies that are made from now on.
func (s state[T]) marks() marks {
	m := marks{tree: s.tree.Mark()}
	for _, index := range s.indexes {
		m.indexes = append(m.indexes, index.Mark())
	}
	return m
}

// reclaim tells that the copies made since marks returned m will never be used
// again.
func (s state[T]) reclaim(m marks) {
	s.tree.Reclaim(m.tree)
	for i, mark := range m.indexes {
		s.indexes[i].Reclaim(mark)
	}
}

// set puts an object and returns the one that it replaced.
func (s state[T]) set(key string, e entry[T]) (prev entry[T], replaced bool) {
	prev, replaced = s.tree.Set(key, e)
	if len(s.indexes) > 0 {
		s.reindex(key, prev.derived, e.derived)
	}
	return prev, replaced
}

// remove deletes a key and returns the object that it had.
func (s state[T]) remove(key string) (prev entry[T], removed bool) {
	prev, removed = s.tree.Delete(key)
	if removed && len(s.indexes) > 0 {
		s.reindex(key, prev.derived, nil)
	}
	return prev, removed
}

func (s state[T]) reindex(key string, before, after *derived) {
	for i, index := range s.indexes {
		old, now := before.values(i), after.values(i)
		for _, value := range old {
			if !contains(now, value) {
				index.Delete(indexLine(value, key))
			}
		}
		for _, value := range now {
			if !contains(old, value) {
				index.Set(indexLine(value, key), struct{}{})
			}
		}
	}
}

// contains is slices.Contains for the few values that an object has.
func contains(values []string, value string) bool {
	for _, v := range values {
		if v == value {
			return true
		}
	}
	return false
}

func (s state[T]) get(key string) (entry[T], bool) { return s.tree.Get(key) }

func (s state[T]) len() int { return s.tree.Len() }

// rank returns how many keys are below key.
func (s state[T]) rank(key string) int { return s.tree.Rank(key) }

// walk steps through the keys of a range, in one direction.
type walk[V any] struct {
	cursor cowtree.Cursor[V]
	in     ranges.Range
	begun  bool
}

func (s state[T]) walk(in ranges.Range) walk[entry[T]] {
	return walk[entry[T]]{cursor: s.tree.Cursor(), in: in}
}

// next moves to the next key, at first to the first.
func (w *walk[V]) next() bool {
	ok := false
	if w.begun {
		ok = w.cursor.Next()
	} else {
		w.begun = true
		ok = w.cursor.Seek(w.in.From)
	}
	return ok && (w.in.To == "" || w.cursor.Key() < w.in.To)
}

// prev moves to the previous key, at first to the last.
func (w *walk[V]) prev() bool {
	ok := false
	switch {
	case w.begun:
		ok = w.cursor.Prev()
	case w.in.To == "":
		ok = w.cursor.Last()
	default:
		w.cursor.Seek(w.in.To)
		ok = w.cursor.Prev()
	}
	w.begun = true
	return ok && w.cursor.Key() >= w.in.From
}

func (w *walk[V]) key() string { return w.cursor.Key() }
func (w *walk[V]) value() V    { return w.cursor.Value() }

// indexWalk steps through the keys of a range that have a value in an index.
type indexWalk struct {
	lines walk[struct{}]
	begin int // of the key in a line
}

func (s state[T]) indexWalk(index int, value string, in ranges.Range) indexWalk {
	of := indexLine(value, "")
	lines := ranges.OfPrefix(of)
	lines.From = of + in.From
	if in.To != "" {
		lines.To = of + in.To
	}
	return indexWalk{walk[struct{}]{cursor: s.indexes[index].Cursor(), in: lines}, len(of)}
}

func (w *indexWalk) next() bool  { return w.lines.next() }
func (w *indexWalk) prev() bool  { return w.lines.prev() }
func (w *indexWalk) key() string { return w.lines.key()[w.begin:] }

package watchcache

import (
	"sort"

	"github.com/tidwall/btree"

	"github.com/watchcache/watchcache/internal/ranges"
)

// state is the current objects and their indexes. Copies share what neither has
// changed since. Whoever changes a state is alone with it.
type state[T any] struct {
	tree    *btree.Map[string, entry[T]]
	indexes []*btree.BTreeG[indexKey] // by index number
}

// indexKey is one line of an index. The object itself stands in the tree only,
// so that a write that changes no index value touches no index.
type indexKey struct{ value, key string }

func (a indexKey) less(b indexKey) bool {
	return a.value < b.value || a.value == b.value && a.key < b.key
}

func newState[T any](indexes int) state[T] {
	s := state[T]{tree: new(btree.Map[string, entry[T]]), indexes: make([]*btree.BTreeG[indexKey], indexes)}
	for i := range s.indexes {
		s.indexes[i] = btree.NewBTreeGOptions(indexKey.less, btree.Options{NoLocks: true})
	}
	return s
}

// copy returns a state that changes independently, in O(1). It changes marks in
// s, so that it needs the cache's lock like a write.
func (s state[T]) copy() state[T] {
	c := state[T]{tree: s.tree.Copy()}
	if len(s.indexes) > 0 {
		c.indexes = make([]*btree.BTreeG[indexKey], len(s.indexes))
		for i, index := range s.indexes {
			c.indexes[i] = index.Copy()
		}
	}
	return c
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
				index.Delete(indexKey{value, key})
			}
		}
		for _, value := range now {
			if !contains(old, value) {
				index.Set(indexKey{value, key})
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
func (s state[T]) rank(key string) int {
	return sort.Search(s.tree.Len(), func(n int) bool {
		k, _, _ := s.tree.GetAt(n)
		return k >= key
	})
}

// walk steps through the keys of a range.
type walk[T any] struct {
	iter  btree.MapIter[string, entry[T]]
	in    ranges.Range
	begun bool
}

func (s state[T]) walk(in ranges.Range) walk[T] { return walk[T]{iter: s.tree.Iter(), in: in} }

// next moves to the next key, at first to the first.
func (w *walk[T]) next() bool {
	if !w.begun {
		w.begun = true
		return w.iter.Seek(w.in.From) && w.inside()
	}
	return w.iter.Next() && w.inside()
}

// prev moves to the previous key, at first to the last.
func (w *walk[T]) prev() bool {
	switch {
	case w.begun:
		return w.iter.Prev() && w.iter.Key() >= w.in.From
	case w.in.To == "" || !w.iter.Seek(w.in.To):
		w.begun = true
		return w.iter.Last() && w.iter.Key() >= w.in.From
	}
	w.begun = true
	return w.iter.Prev() && w.iter.Key() >= w.in.From
}

func (w *walk[T]) inside() bool { return w.in.To == "" || w.iter.Key() < w.in.To }

func (w *walk[T]) key() string     { return w.iter.Key() }
func (w *walk[T]) entry() entry[T] { return w.iter.Value() }

// indexWalk steps through the keys of a range that have a value in an index.
type indexWalk struct {
	iter  btree.IterG[indexKey]
	value string
	in    ranges.Range
	begun bool
}

func (s state[T]) indexWalk(index int, value string, in ranges.Range) indexWalk {
	return indexWalk{iter: s.indexes[index].Iter(), value: value, in: in}
}

func (w *indexWalk) next() bool {
	ok := false
	if w.begun {
		ok = w.iter.Next()
	} else {
		w.begun = true
		ok = w.iter.Seek(indexKey{w.value, w.in.From})
	}
	return ok && w.inside()
}

func (w *indexWalk) prev() bool {
	ok := false
	switch {
	case w.begun:
		ok = w.iter.Prev()
	case w.in.To != "" && w.iter.Seek(indexKey{w.value, w.in.To}),
		w.in.To == "" && w.iter.Seek(indexKey{w.value + "\x00", ""}): // the least value above
		ok = w.iter.Prev()
	default:
		ok = w.iter.Last()
	}
	w.begun = true
	return ok && w.inside()
}

func (w *indexWalk) inside() bool {
	at := w.iter.Item()
	return at.value == w.value && w.in.Contains(at.key)
}

func (w *indexWalk) key() string { return w.iter.Item().key }

// Package ranges has a set of half-open string ranges that answers which of
// them contain a key, in O(log n + matches). It is a treap ordered by lower
// bound whose nodes know the greatest upper bound below them (CLRS, "Interval
// trees").
package ranges

import "math/rand/v2"

// Range is [From, To). An empty To is open: there is no upper bound.
type Range struct{ From, To string }

// Contains reports whether key lies in the range.
func (r Range) Contains(key string) bool {
	return r.From <= key && (r.To == "" || key < r.To)
}

// OfPrefix returns the range of all keys that begin with prefix.
func OfPrefix(prefix string) Range {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return Range{From: prefix, To: prefix[:i] + string([]byte{prefix[i] + 1})}
		}
	}
	return Range{From: prefix} // empty or all 0xff: nothing above begins differently
}

// Set maps ranges to values. The zero Set is empty. It is not safe for
// concurrent use.
type Set[V any] struct {
	root *node[V]
}

type node[V any] struct {
	Range
	value       V
	top         string // the greatest To in this subtree; "" is open
	weight      uint32 // heap order, random: keeps the tree balanced
	left, right *node[V]
}

// Empty reports whether the set has no range.
func (s *Set[V]) Empty() bool { return s.root == nil }

// Add puts a range that is not in the set yet.
func (s *Set[V]) Add(r Range, value V) {
	s.root = insert(s.root, &node[V]{Range: r, value: value, top: r.To, weight: rand.Uint32()})
}

// Remove takes a range out, if it is in.
func (s *Set[V]) Remove(r Range) { s.root = remove(s.root, r) }

// Visit calls f with the value of every range that contains key.
func (s *Set[V]) Visit(key string, f func(V)) { visit(s.root, key, f) }

func visit[V any](n *node[V], key string, f func(V)) {
	for n != nil {
		if n.top != "" && n.top <= key {
			return // every range here ends at or before key
		}
		visit(n.left, key, f)
		if key < n.From {
			return // and so does everything to the right begin above it
		}
		if n.Contains(key) {
			f(n.value)
		}
		n = n.right
	}
}

func less(a, b Range) bool { return a.From < b.From || a.From == b.From && a.To < b.To }

func insert[V any](n, fresh *node[V]) *node[V] {
	switch {
	case n == nil:
		return fresh
	case fresh.weight > n.weight:
		fresh.left, fresh.right = split(n, fresh.Range)
		return fresh.update()
	case less(fresh.Range, n.Range):
		n.left = insert(n.left, fresh)
	default:
		n.right = insert(n.right, fresh)
	}
	return n.update()
}

func remove[V any](n *node[V], r Range) *node[V] {
	switch {
	case n == nil:
		return nil
	case n.Range == r:
		return merge(n.left, n.right)
	case less(r, n.Range):
		n.left = remove(n.left, r)
	default:
		n.right = remove(n.right, r)
	}
	return n.update()
}

// split divides a tree into what is below r and what is not.
func split[V any](n *node[V], r Range) (below, above *node[V]) {
	if n == nil {
		return nil, nil
	}
	if less(n.Range, r) {
		n.right, above = split(n.right, r)
		return n.update(), above
	}
	below, n.left = split(n.left, r)
	return below, n.update()
}

// merge joins two trees, everything in a lying below everything in b.
func merge[V any](a, b *node[V]) *node[V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight > b.weight:
		a.right = merge(a.right, b)
		return a.update()
	default:
		b.left = merge(a, b.left)
		return b.update()
	}
}

func (n *node[V]) update() *node[V] {
	n.top = n.To
	for _, child := range [...]*node[V]{n.left, n.right} {
		if child != nil && n.top != "" && (child.top == "" || child.top > n.top) {
			n.top = child.top
		}
	}
	return n
}

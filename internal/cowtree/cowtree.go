// Package cowtree has an ordered map from strings that is copied in O(1): a
// B+ tree whose copies share every node that neither has changed since.
//
// It stands here in place of a library because of what it must not do. A node
// that leaves the tree, or moves, leaves nothing behind: every slot that is not
// in use is zero, and no two nodes share memory, so that an object that was
// replaced is free as soon as no copy of the tree has it. (Of the B-trees at hand,
// one keeps a full set of replaced objects alive after keys came in ascending
// order; others cannot count a range without visiting it. See docs/decisions.md.)
package cowtree

import (
	"slices"
	"sync/atomic"
)

const (
	most  = 64       // items in a leaf, children of an inner node
	least = most / 4 // fewer, and a node is joined with its neighbour
)

// Tree is an ordered map. The zero Tree is empty. Reading it, also through
// cursors, is safe for any number of goroutines while nobody changes it; its
// copies are independent of it in this.
type Tree[V any] struct {
	root *node[V]
	own  uint64 // nodes that carry it are this tree's alone
}

// node is a leaf, with keys and values, or an inner node, with children and,
// between each two of them, the least key that may stand to the right.
type node[V any] struct {
	owner uint64
	size  int // items below, or here
	keys  []string
	vals  []V
	kids  []*node[V]
}

var owners atomic.Uint64

// Copy returns a tree with the same items. It changes the tree's own mark, and so
// must not run together with anything that changes or copies the tree.
func (t *Tree[V]) Copy() *Tree[V] {
	t.own = owners.Add(1)
	return &Tree[V]{root: t.root, own: owners.Add(1)}
}

// Len returns the number of items.
func (t *Tree[V]) Len() int {
	if t.root == nil {
		return 0
	}
	return t.root.size
}

// Get returns the value of a key.
func (t *Tree[V]) Get(key string) (value V, ok bool) {
	n := t.root
	if n == nil {
		return value, false
	}
	for n.kids != nil {
		n = n.kids[n.child(key)]
	}
	if i, ok := n.find(key); ok {
		return n.vals[i], true
	}
	return value, false
}

// Rank returns how many keys are below key, in O(log n).
func (t *Tree[V]) Rank(key string) int {
	n, rank := t.root, 0
	if n == nil {
		return 0
	}
	for n.kids != nil {
		at := n.child(key)
		for _, kid := range n.kids[:at] {
			rank += kid.size
		}
		n = n.kids[at]
	}
	i, _ := n.find(key)
	return rank + i
}

// find returns the place of key in a leaf, or that where it belongs.
func (n *node[V]) find(key string) (int, bool) {
	keys := n.keys
	low, high := 0, len(keys)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if keys[middle] < key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(keys) && keys[low] == key
}

// child returns which child of an inner node a key belongs to.
func (n *node[V]) child(key string) int {
	keys := n.keys
	low, high := 0, len(keys)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if key < keys[middle] {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// mine makes the node at *p this tree's own, by a copy if need be.
func (t *Tree[V]) mine(p **node[V]) *node[V] {
	n := *p
	if n.owner == t.own {
		return n
	}
	*p = &node[V]{owner: t.own, size: n.size, keys: slices.Clone(n.keys), vals: slices.Clone(n.vals), kids: slices.Clone(n.kids)}
	return *p
}

// Set gives a key a value, and returns the one that it replaced.
func (t *Tree[V]) Set(key string, value V) (prev V, replaced bool) {
	if t.root == nil {
		t.root = &node[V]{owner: t.own, size: 1, keys: []string{key}, vals: []V{value}}
		return prev, false
	}
	prev, replaced, border, right := t.set(&t.root, key, value, true)
	if right != nil {
		left := t.root
		t.root = &node[V]{owner: t.own, size: left.size + right.size, keys: []string{border}, kids: []*node[V]{left, right}}
	}
	return prev, replaced
}

// set is Set below a node; last: nothing stands to its right. If the node had to
// be split, it returns what is to stand there, and the border between the two.
func (t *Tree[V]) set(p **node[V], key string, value V, last bool) (prev V, replaced bool, border string, right *node[V]) {
	n := t.mine(p)
	if n.kids == nil {
		i, ok := n.find(key)
		if ok {
			prev, n.vals[i] = n.vals[i], value
			return prev, true, "", nil
		}
		if len(n.keys) == most {
			border, right = t.split(n, last && i == most)
			if key >= border {
				n, i = right, i-len((*p).keys)
			}
		}
		n.keys = slices.Insert(n.keys, i, key)
		n.vals = slices.Insert(n.vals, i, value)
		n.size++
		if right != nil && len(right.keys) > 0 {
			border = right.keys[0]
		}
		return prev, false, border, right
	}
	at := n.child(key)
	prev, replaced, low, fresh := t.set(&n.kids[at], key, value, last && at == len(n.kids)-1)
	if !replaced {
		n.size++
	}
	if fresh != nil {
		n.keys = slices.Insert(n.keys, at, low)
		n.kids = slices.Insert(n.kids, at+1, fresh)
		if len(n.kids) > most {
			border, right = t.splitInner(n, last && at+2 == len(n.kids))
		}
	}
	return prev, replaced, border, right
}

// split moves the upper half of a full leaf into a new one; with inOrder nothing,
// so that keys that come in order leave full leaves behind.
func (t *Tree[V]) split(n *node[V], inOrder bool) (border string, right *node[V]) {
	middle := most / 2
	if inOrder {
		middle = most
	}
	right = &node[V]{
		owner: t.own,
		size:  most - middle,
		keys:  slices.Clone(n.keys[middle:]),
		vals:  slices.Clone(n.vals[middle:]),
	}
	if inOrder {
		return "", right // the border will be the key that comes: it is not below ""
	}
	n.keys, n.vals, n.size = cut(n.keys, middle), cut(n.vals, middle), middle
	return right.keys[0], right
}

func (t *Tree[V]) splitInner(n *node[V], inOrder bool) (border string, right *node[V]) {
	middle := len(n.kids) / 2
	if inOrder {
		middle = len(n.kids) - 2
	}
	border = n.keys[middle-1]
	right = &node[V]{owner: t.own, keys: slices.Clone(n.keys[middle:]), kids: slices.Clone(n.kids[middle:])}
	n.keys, n.kids = cut(n.keys, middle-1), cut(n.kids, middle)
	right.count()
	n.size -= right.size
	return border, right
}

// cut shortens a slice and clears what it leaves.
func cut[E any](s []E, n int) []E {
	clear(s[n:])
	return s[:n]
}

func (n *node[V]) count() {
	n.size = len(n.vals)
	for _, kid := range n.kids {
		n.size += kid.size
	}
}

// Delete removes a key, and returns the value that it had.
func (t *Tree[V]) Delete(key string) (prev V, deleted bool) {
	if prev, deleted = t.Get(key); !deleted { // nothing is copied for nothing
		return prev, false
	}
	t.remove(&t.root, key)
	for len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
	if t.root.size == 0 {
		t.root = nil
	}
	return prev, true
}

func (t *Tree[V]) remove(p **node[V], key string) {
	n := t.mine(p)
	n.size--
	if n.kids == nil {
		i, _ := n.find(key)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.vals = slices.Delete(n.vals, i, i+1)
		return
	}
	at := n.child(key)
	t.remove(&n.kids[at], key)
	if kid := n.kids[at]; max(len(kid.vals), len(kid.kids)) < least {
		t.level(n, max(0, at-1))
	}
}

// level joins a child and the next one, or gives each a half of what they have.
// Every inner node has two children at least, but for the moment before it is
// levelled itself.
func (t *Tree[V]) level(n *node[V], at int) {
	if len(n.kids) < 2 {
		return
	}
	left, right := t.mine(&n.kids[at]), t.mine(&n.kids[at+1])
	leaves := left.kids == nil
	keys := slices.Concat(left.keys, right.keys)
	if !leaves { // the border comes down between the two
		keys = slices.Concat(left.keys, n.keys[at:at+1], right.keys)
	}
	vals, kids := slices.Concat(left.vals, right.vals), slices.Concat(left.kids, right.kids)
	total := max(len(vals), len(kids))
	if total <= most*3/4 {
		left.keys, left.vals, left.kids = keys, vals, kids
		left.count()
		n.keys = slices.Delete(n.keys, at, at+1)
		n.kids = slices.Delete(n.kids, at+1, at+2)
		return
	}
	half := total / 2
	if leaves {
		left.keys, left.vals = slices.Clone(keys[:half]), slices.Clone(vals[:half])
		right.keys, right.vals = slices.Clone(keys[half:]), slices.Clone(vals[half:])
		n.keys[at] = right.keys[0]
	} else {
		left.keys, left.kids = slices.Clone(keys[:half-1]), slices.Clone(kids[:half])
		right.keys, right.kids = slices.Clone(keys[half:]), slices.Clone(kids[half:])
		n.keys[at] = keys[half-1]
	}
	left.count()
	right.count()
}

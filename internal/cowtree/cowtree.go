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
	own  uint64 // the mark of nodes that this tree makes
	from uint64 // nodes with this mark, or one above, are this tree's alone
}

// node is a leaf, with items, or an inner node, with children and, between each
// two of them, the least key that may stand to the right: their border. Its keys
// are those of the items, or the borders. See search.go for marks.
type node[V any] struct {
	owner   uint64
	size    int // items below, or here
	skip    int // so many bytes at least are the same in all keys
	items   []Item[V]
	kids    []*node[V]
	borders []string
	marks   [most]uint64
}

// Item is a key with its value.
type Item[V any] struct {
	Value V // first: it may be of no size, which costs nothing only here
	Key   string
}

var owners atomic.Uint64

// Copy returns a tree with the same items. It changes the tree's own marks, and so
// must not run together with anything that changes or copies the tree.
func (t *Tree[V]) Copy() *Tree[V] {
	t.own = owners.Add(1)
	t.from = t.own
	other := owners.Add(1)
	return &Tree[V]{root: t.root, own: other, from: other}
}

// Mark returns what tells Reclaim of the copies that are made from now on.
func (t *Tree[V]) Mark() uint64 { return t.from }

// Reclaim tells that the copies made since Mark returned mark will never be used
// again: what the tree shared with them only, it changes in place.
func (t *Tree[V]) Reclaim(mark uint64) { t.from = min(t.from, mark) }

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
	at, known := 0, 0
	for ; n.kids != nil; n = n.kids[at] {
		at, known = n.child(key, known)
	}
	if i, ok := n.find(key, known); ok {
		return n.items[i].Value, true
	}
	return value, false
}

// Rank returns how many keys are below key, in O(log n).
func (t *Tree[V]) Rank(key string) int {
	n, rank := t.root, 0
	if n == nil {
		return 0
	}
	at, known := 0, 0
	for ; n.kids != nil; n = n.kids[at] {
		at, known = n.child(key, known)
		for _, kid := range n.kids[:at] {
			rank += kid.size
		}
	}
	i, _ := n.find(key, known)
	return rank + i
}

// mine makes the node at *p this tree's own, by a copy if need be.
func (t *Tree[V]) mine(p **node[V]) *node[V] {
	n := *p
	if n.owner >= t.from {
		return n
	}
	*p = &node[V]{
		owner:   t.own,
		size:    n.size,
		skip:    n.skip,
		marks:   n.marks,
		items:   slices.Clone(n.items),
		borders: slices.Clone(n.borders),
		kids:    slices.Clone(n.kids),
	}
	return *p
}

func (t *Tree[V]) newLeaf(items []Item[V]) *node[V] {
	n := &node[V]{owner: t.own, size: len(items), items: items}
	n.mark()
	return n
}

func (t *Tree[V]) newInner(borders []string, kids []*node[V]) *node[V] {
	n := &node[V]{owner: t.own, borders: borders, kids: kids}
	n.mark()
	n.count()
	return n
}

// Set gives a key a value, and returns the one that it replaced.
func (t *Tree[V]) Set(key string, value V) (prev V, replaced bool) {
	if t.root == nil {
		t.root = t.newLeaf([]Item[V]{{value, key}})
		return prev, false
	}
	prev, replaced, border, right := t.set(&t.root, key, value, 0, true)
	if right != nil {
		t.root = t.newInner([]string{border}, []*node[V]{t.root, right})
	}
	return prev, replaced
}

// set is Set below a node; known is as in child, and last: nothing stands to its
// right. If the node had to be split, it returns what is to stand there, and the
// border between the two.
func (t *Tree[V]) set(p **node[V], key string, value V, known int, last bool) (prev V, replaced bool, border string, right *node[V]) {
	n := t.mine(p)
	if n.kids == nil {
		i, ok := n.find(key, known)
		if ok {
			prev, n.items[i].Value = n.items[i].Value, value
			return prev, true, "", nil
		}
		if len(n.items) == most {
			right = t.split(n, last && i == most)
			if left := len(n.items); i >= left && (len(right.items) == 0 || i > left || key >= right.items[0].Key) {
				n, i = right, i-left
			}
		}
		n.items = slices.Insert(n.items, i, Item[V]{value, key})
		n.size++
		n.remark(i)
		if right != nil {
			border = right.items[0].Key
		}
		return prev, false, border, right
	}
	at, known := n.child(key, known)
	prev, replaced, low, fresh := t.set(&n.kids[at], key, value, known, last && at == len(n.kids)-1)
	if !replaced {
		n.size++
	}
	if fresh != nil {
		n.borders = slices.Insert(n.borders, at, low)
		n.kids = slices.Insert(n.kids, at+1, fresh)
		n.remark(at)
		if len(n.kids) > most {
			border, right = t.splitInner(n, last && at+2 == len(n.kids))
		}
	}
	return prev, replaced, border, right
}

// split moves the upper half of a full leaf into a new one; with inOrder nothing,
// so that keys that come in order leave full leaves behind.
func (t *Tree[V]) split(n *node[V], inOrder bool) (right *node[V]) {
	if inOrder {
		return t.newLeaf(nil)
	}
	const middle = most / 2
	right = t.newLeaf(slices.Clone(n.items[middle:]))
	n.items, n.size = cut(n.items, middle), middle
	n.mark()
	return right
}

func (t *Tree[V]) splitInner(n *node[V], inOrder bool) (border string, right *node[V]) {
	middle := len(n.kids) / 2
	if inOrder {
		middle = len(n.kids) - 2
	}
	border = n.borders[middle-1]
	right = t.newInner(slices.Clone(n.borders[middle:]), slices.Clone(n.kids[middle:]))
	n.borders, n.kids = cut(n.borders, middle-1), cut(n.kids, middle)
	n.size -= right.size
	n.mark()
	return border, right
}

// cut shortens a slice and clears what it leaves.
func cut[E any](s []E, n int) []E {
	clear(s[n:])
	return s[:n]
}

func (n *node[V]) count() {
	n.size = len(n.items)
	for _, kid := range n.kids {
		n.size += kid.size
	}
}

// Delete removes a key, and returns the value that it had.
func (t *Tree[V]) Delete(key string) (prev V, deleted bool) {
	if prev, deleted = t.Get(key); !deleted { // nothing is copied for nothing
		return prev, false
	}
	t.remove(&t.root, key, 0)
	for len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
	if t.root.size == 0 {
		t.root = nil
	}
	return prev, true
}

func (t *Tree[V]) remove(p **node[V], key string, known int) {
	n := t.mine(p)
	n.size--
	if n.kids == nil {
		i, _ := n.find(key, known)
		n.unmark(i)
		n.items = slices.Delete(n.items, i, i+1)
		return
	}
	at, known := n.child(key, known)
	t.remove(&n.kids[at], key, known)
	if kid := n.kids[at]; max(len(kid.items), len(kid.kids)) < least {
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
	items, kids := slices.Concat(left.items, right.items), slices.Concat(left.kids, right.kids)
	var borders []string
	if kids != nil { // the border comes down between the two
		borders = slices.Concat(left.borders, n.borders[at:at+1], right.borders)
	}
	total := max(len(items), len(kids))
	half := total / 2
	switch {
	case total <= most*3/4:
		left.items, left.borders, left.kids = items, borders, kids
		n.unmark(at)
		n.borders = slices.Delete(n.borders, at, at+1)
		n.kids = slices.Delete(n.kids, at+1, at+2)
	case kids == nil:
		left.items, right.items = slices.Clone(items[:half]), slices.Clone(items[half:])
		n.borders[at] = right.items[0].Key
		n.mark()
	default:
		left.borders, left.kids = slices.Clone(borders[:half-1]), slices.Clone(kids[:half])
		right.borders, right.kids = slices.Clone(borders[half:]), slices.Clone(kids[half:])
		n.borders[at] = borders[half-1]
		n.mark()
	}
	for _, kid := range []*node[V]{left, right} {
		kid.mark()
		kid.count()
	}
}

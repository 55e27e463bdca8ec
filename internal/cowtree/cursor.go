package cowtree

// Cursor walks over a tree in order, both ways. The zero Cursor is at the end of
// an empty tree. The tree must not change meanwhile; a copy may.
type Cursor[V any] struct {
	root  *node[V]
	path  [maxDepth]step[V] // inner nodes from the root down
	depth int
	leaf  *node[V]
	at    int
}

type step[V any] struct {
	n  *node[V]
	at int
}

// maxDepth is more than a tree in memory can have: a node has a quarter of most
// children at the least, but for the root.
const maxDepth = 16

// Cursor returns a cursor that stands nowhere: Seek, First or Last come first.
func (t *Tree[V]) Cursor() Cursor[V] { return Cursor[V]{root: t.root} }

// Seek moves to the first item whose key is not below key.
func (c *Cursor[V]) Seek(key string) bool {
	return c.descend(func(n *node[V]) int { at, _ := n.child(key, 0); return at }, func(n *node[V]) int {
		i, _ := n.find(key, 0)
		return i
	}) && c.settle()
}

// Last moves to the last item.
func (c *Cursor[V]) Last() bool {
	return c.descend(func(n *node[V]) int { return len(n.kids) - 1 }, func(n *node[V]) int { return len(n.items) - 1 })
}

func (c *Cursor[V]) descend(child, place func(*node[V]) int) bool {
	n := c.root
	if n == nil {
		return false
	}
	c.depth = 0
	for n.kids != nil {
		at := child(n)
		c.path[c.depth] = step[V]{n, at}
		c.depth++
		n = n.kids[at]
	}
	c.leaf, c.at = n, place(n)
	return true
}

// settle moves on to the next leaf if the cursor is past the end of its own.
func (c *Cursor[V]) settle() bool {
	if c.at < len(c.leaf.items) {
		return true
	}
	return c.NextRun()
}

// Next moves to the next item.
func (c *Cursor[V]) Next() bool {
	if c.leaf == nil {
		return false
	}
	if c.at < len(c.leaf.items) {
		c.at++
	}
	return c.settle()
}

// Prev moves to the previous item. From beyond the last, that is the last.
func (c *Cursor[V]) Prev() bool {
	if c.leaf == nil {
		return false
	}
	if c.at > 0 {
		c.at--
		return true
	}
	for d := c.depth - 1; d >= 0; d-- {
		if s := &c.path[d]; s.at > 0 {
			s.at--
			n := s.n.kids[s.at]
			for c.depth = d + 1; n.kids != nil; c.depth++ {
				c.path[c.depth] = step[V]{n, len(n.kids) - 1}
				n = n.kids[len(n.kids)-1]
			}
			c.leaf, c.at = n, len(n.items)-1
			return true
		}
	}
	return false
}

// Run returns the item that the cursor stands at and those that follow it in the
// same leaf. They are the tree's own: read-only.
func (c *Cursor[V]) Run() []Item[V] { return c.leaf.items[c.at:] }

// NextRun moves to the first item of the next leaf.
func (c *Cursor[V]) NextRun() bool {
	for d := c.depth - 1; d >= 0; d-- {
		if s := &c.path[d]; s.at+1 < len(s.n.kids) {
			s.at++
			n := s.n.kids[s.at]
			for c.depth = d + 1; n.kids != nil; c.depth++ {
				c.path[c.depth] = step[V]{n, 0}
				n = n.kids[0]
			}
			c.leaf, c.at = n, 0
			return true
		}
	}
	c.at = len(c.leaf.items)
	return false
}

// Key returns the key that the cursor stands at.
func (c *Cursor[V]) Key() string { return c.leaf.items[c.at].Key }

// Value returns the value that the cursor stands at.
func (c *Cursor[V]) Value() V { return c.leaf.items[c.at].Value }

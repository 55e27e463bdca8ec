package cowtree

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// A search through a node compares numbers that lie together in memory, not
// strings that lie anywhere: beside each key the node has its mark, the first
// eight bytes that may tell it from the node's other keys. Marks are in the order
// of their keys; where marks are the same, the strings are looked at.

// marked is how many bytes of a key its mark has.
const marked = 8

// unused is the mark where there is no key: no mark is above it.
const unused = math.MaxUint64

// early is how many bytes before the first that tells keys apart the marks begin:
// then what [node.child] knows of a leaf reaches mostly up to there, and six bytes
// tell as many keys apart as eight do.
const early = 2

// markOf returns eight bytes of key, from skip on, as a number. Behind the key's
// end are zeros.
func markOf(key string, skip int) uint64 {
	tail := len(key) - skip
	if tail >= 8 {
		return load(key[skip:])
	}
	if len(key) >= 8 {
		return load(key[len(key)-8:]) << (8 * (8 - tail)) // by 64 or more nothing is left
	}
	var mark uint64
	for i := range tail {
		mark |= uint64(key[skip+i]) << (56 - 8*i)
	}
	return mark
}

// load reads eight bytes; the compiler makes one instruction of it.
func load(s string) uint64 {
	_ = s[7]
	return uint64(s[7]) | uint64(s[6])<<8 | uint64(s[5])<<16 | uint64(s[4])<<24 |
		uint64(s[3])<<32 | uint64(s[2])<<40 | uint64(s[1])<<48 | uint64(s[0])<<56
}

// keys returns how many keys a node has, and key each of them.
func (n *node[V]) keys() int { return len(n.items) + len(n.borders) }

func (n *node[V]) key(i int) string {
	if n.kids == nil {
		return n.items[i].Key
	}
	return n.borders[i]
}

// mark marks all keys anew.
func (n *node[V]) mark() {
	n.skip = 0
	count := n.keys()
	if count > 0 {
		n.skip = max(0, common(n.key(0), n.key(count-1))-early)
	}
	for i := range count {
		n.marks[i] = markOf(n.key(i), n.skip)
	}
	for i := count; i < most; i++ {
		n.marks[i] = unused
	}
}

// remark marks the key i, which was inserted.
func (n *node[V]) remark(i int) {
	count, key := n.keys(), n.key(i)
	other := 0
	if i == 0 {
		other = 1
	}
	if other >= count || !strings.HasPrefix(key, n.key(other)[:n.skip]) {
		n.mark()
		return
	}
	copy(n.marks[i+1:count], n.marks[i:])
	n.marks[i] = markOf(key, n.skip)
}

// unmark removes the mark of the key i, which is about to be deleted.
func (n *node[V]) unmark(i int) {
	copy(n.marks[i:], n.marks[i+1:])
	n.marks[most-1] = unused
}

// common returns how many bytes two keys begin with that are the same.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// find returns the place of key in a leaf, or that where it belongs. known is as
// in child.
func (n *node[V]) find(key string, known int) (int, bool) {
	// As if key had the bytes that all have: if it is found, it has.
	mark := markOf(key, n.skip)
	if i := below(&n.marks, mark); i < len(n.items) && n.marks[i] == mark {
		// Where the mark has all that is not known, the strings are not read.
		whole := known >= n.skip && len(key) <= n.skip+marked
		if k := n.items[i].Key; len(k) == len(key) && (whole || k == key) {
			return i, true
		}
	}
	i, maybe := n.search(key, known)
	return i, maybe && n.items[i].Key == key
}

// child returns to which child of an inner node a key belongs. known is how many
// of its first bytes are known to be those of all the node's keys, and what child
// returns beside is that for the child: what stands there lies between two borders,
// as key does, and so has the bytes that the marks of the two have in common. A
// key that ends before that counts as going on with zeros, in all of this.
func (n *node[V]) child(key string, known int) (at, knownThere int) {
	i, maybe := n.search(key, known)
	if maybe && n.borders[i] == key {
		i++
	}
	if i == 0 || i == len(n.borders) {
		return i, known
	}
	return i, n.skip + bits.LeadingZeros64(n.marks[i-1]^n.marks[i])/8
}

// search returns how many of the node's keys are below key, and whether the next
// one may be key. known is as in child.
func (n *node[V]) search(key string, known int) (at int, maybe bool) {
	count := n.keys()
	if count == 0 {
		return 0, false
	}
	if known < n.skip {
		if shared := n.key(0)[:n.skip]; !strings.HasPrefix(key, shared) {
			if key < shared {
				return 0, false
			}
			return count, false
		}
	}
	mark := markOf(key, n.skip)
	i := below(&n.marks, mark)
	if i == count || n.marks[i] != mark {
		return i, false
	}
	same := i + 1
	for same < count && n.marks[same] == mark {
		same++
	}
	if n.kids == nil {
		more, _ := slices.BinarySearchFunc(n.items[i:same], key, func(it Item[V], key string) int { return strings.Compare(it.Key, key) })
		return i + more, i+more < same
	}
	more, _ := slices.BinarySearch(n.borders[i:same], key)
	return i + more, i+more < same
}

// below returns how many of a node's marks are below mark. A binary search has six steps
// of which each waits for the memory of the one before, and for the processor that has
// guessed wrong at every other. Here are two, without a branch: the first of each eight
// are compared, then the eight. It is no generic function, so that it is compiled here, less with it.
func below(marks *[most]uint64, mark uint64) int {
	eights := less(marks[8], mark) + less(marks[16], mark) + less(marks[24], mark) + less(marks[32], mark) +
		less(marks[40], mark) + less(marks[48], mark) + less(marks[56], mark)
	at := eights * 8 % most // the rest is for the compiler, which does not know that eights is 7 at most
	m := (*[8]uint64)(marks[at:])
	return int(at + less(m[0], mark) + less(m[1], mark) + less(m[2], mark) + less(m[3], mark) +
		less(m[4], mark) + less(m[5], mark) + less(m[6], mark) + less(m[7], mark))
}

// less is 1 if a is below b, and 0 if not, without a branch.
func less(a, b uint64) uint64 {
	_, borrow := bits.Sub64(a, b, 0)
	return borrow
}

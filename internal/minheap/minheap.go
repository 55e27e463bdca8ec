// Package minheap is a binary min-heap whose elements know their own place in
// it, so that one can be moved or taken out in O(log n). container/heap would do
// the same through an interface call for each comparison and swap.
package minheap

// Item is what a heap holds: a pointer whose key and place live in the element
// itself. A place is the element's index in the heap plus one; 0 is "not in it".
type Item interface {
	comparable
	Key() uint64
	Place() *int32
}

// Heap is a min-heap by key. The zero Heap is empty. It is not safe for
// concurrent use. Whoever changes the key of an element calls Fix.
type Heap[E Item] struct {
	items []E
}

// Len returns the number of elements.
func (h *Heap[E]) Len() int { return len(h.items) }

// Min returns the element with the least key; the heap must not be empty.
func (h *Heap[E]) Min() E { return h.items[0] }

// All returns the elements in no particular order; the slice is the heap's own.
func (h *Heap[E]) All() []E { return h.items }

// Push adds e, or moves it to where its key belongs if it is in the heap already.
func (h *Heap[E]) Push(e E) {
	if *e.Place() != 0 {
		h.Fix(e)
		return
	}
	h.items = append(h.items, e)
	*e.Place() = int32(len(h.items))
	h.up(len(h.items) - 1)
}

// Fix restores the order after the key of e changed.
func (h *Heap[E]) Fix(e E) {
	i := int(*e.Place()) - 1
	if !h.up(i) {
		h.down(i)
	}
}

// Remove takes e out, if it is in.
func (h *Heap[E]) Remove(e E) {
	place := e.Place()
	if *place == 0 {
		return
	}
	i, last := int(*place)-1, len(h.items)-1
	*place = 0
	if i != last {
		h.items[i] = h.items[last]
		*h.items[i].Place() = int32(i + 1)
	}
	var none E
	h.items[last] = none
	h.items = h.items[:last]
	if i != last && !h.up(i) {
		h.down(i)
	}
	if cap(h.items) > 64 && len(h.items) < cap(h.items)/4 {
		h.items = append(make([]E, 0, 2*len(h.items)), h.items...)
	}
}

func (h *Heap[E]) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.items[parent].Key() <= h.items[i].Key() {
			break
		}
		h.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (h *Heap[E]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.items); child++ {
			if h.items[child].Key() < h.items[least].Key() {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *Heap[E]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.items[i].Place() = int32(i + 1)
	*h.items[j].Place() = int32(j + 1)
}

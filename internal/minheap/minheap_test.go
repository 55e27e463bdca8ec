package minheap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type thing struct {
	key   uint64
	place int32
}

func (t *thing) Key() uint64   { return t.key }
func (t *thing) Place() *int32 { return &t.place }

func TestHeapIsAlwaysTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var h Heap[*thing]
	var all []*thing
	for range 20_000 {
		switch r.IntN(4) {
		case 0, 1:
			x := &thing{key: r.Uint64N(1000)}
			h.Push(x)
			all = append(all, x)
		case 2:
			if len(all) > 0 {
				i := r.IntN(len(all))
				h.Remove(all[i])
				h.Remove(all[i]) // again is a no-op
				all = slices.Delete(all, i, i+1)
			}
		case 3:
			if len(all) > 0 {
				x := all[r.IntN(len(all))]
				x.key = r.Uint64N(1000)
				h.Push(x) // moves it
			}
		}
		if h.Len() != len(all) {
			t.Fatalf("%d elements, want %d", h.Len(), len(all))
		}
		if len(all) > 0 {
			least := slices.MinFunc(all, func(a, b *thing) int { return int(a.key) - int(b.key) })
			if h.Min().key != least.key {
				t.Fatalf("Min is %d, want %d", h.Min().key, least.key)
			}
		}
	}
}

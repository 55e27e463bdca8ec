//go:build amd64 && !race

package cell

import "sync/atomic"

// Cell is a number with one writer and any number of readers. The zero Cell
// holds 0. It must not be copied after first use.
type Cell[N ~uint64] struct {
	_ noCopy
	n uint64
}

// Set stores n. Only the one writer may call it.
func (c *Cell[N]) Set(n N) { c.n = uint64(n) }

// Own returns the number as its writer knows it. Only the writer may call it.
func (c *Cell[N]) Own() N { return N(c.n) }

// Get returns a number that was stored, perhaps not the newest. Anyone may call it.
func (c *Cell[N]) Get() N { return N(atomic.LoadUint64(&c.n)) }

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

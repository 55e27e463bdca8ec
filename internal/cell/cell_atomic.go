//go:build !amd64 || race

package cell

import "sync/atomic"

// Cell is a number with one writer and any number of readers. The zero Cell
// holds 0. It must not be copied after first use.
type Cell struct {
	n atomic.Uint64
}

// Set stores n. Only the one writer may call it.
func (c *Cell) Set(n uint64) { c.n.Store(n) }

// Own returns the number as its writer knows it. Only the writer may call it.
func (c *Cell) Own() uint64 { return c.n.Load() }

// Get returns a number that was stored, perhaps not the newest. Anyone may call it.
func (c *Cell) Get() uint64 { return c.n.Load() }

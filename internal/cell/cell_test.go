package cell

import (
	"sync"
	"testing"
)

// TestReadersNeverSeeWhatWasNotStored: one writer counts up; readers see no value
// go back, and none beyond it.
func TestReadersNeverSeeWhatWasNotStored(t *testing.T) {
	var c Cell[uint64]
	var readers sync.WaitGroup
	const n = 1 << 20
	for range 3 {
		readers.Go(func() {
			for last := uint64(0); last < n; {
				now := c.Get()
				if now < last || now > n {
					t.Errorf("saw %d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	for i := uint64(1); i <= n; i++ {
		c.Set(i)
		if c.Own() != i {
			t.Fatalf("the writer sees %d after storing %d", c.Own(), i)
		}
	}
	readers.Wait()
}

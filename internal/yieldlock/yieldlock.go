// Package yieldlock has a lock for one that is in a hurry among many that are not.
package yieldlock

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Mutex is a [sync.RWMutex] for critical sections of a microsecond, of which one kind,
// that of LockFirst, should not have to wait for the goroutines of the others. The zero
// Mutex is unlocked.
//
// With more goroutines at work than processors, who sleeps on a lock waits twice: until
// it is free, and then for a processor, behind goroutines that work for as long as the
// scheduler lets them, 10 ms each. The first wait is short, the second is not. So:
//
//   - Who unlocks while somebody waits in LockFirst yields: the goroutine that it has
//     just made ready is the next on its processor.
//   - Nobody sleeps on the lock at once. Who has slept for a millisecond makes a
//     sync.Mutex hand itself over at each Unlock, and that takes the processor from who
//     unlocks: LockFirst would have been quick, and its Unlock takes as long as it can
//     take to get a processor again.
type Mutex struct {
	mu sync.RWMutex
	// waiting is how many sleep in LockFirst. It is raised before and lowered after,
	// and only tells when to yield: nothing else depends on it.
	waiting atomic.Int32
}

const (
	tries  = 100 // of a spin: some microseconds
	pause  = 20  // readings between two tries
	rounds = 10  // of spinning and yielding, before Lock sleeps
	yields = 10  // of who unlocks: the scheduler may come back to it first
)

// Lock is [sync.RWMutex.Lock].
func (m *Mutex) Lock() {
	for range rounds {
		if m.spin() {
			return
		}
		runtime.Gosched()
	}
	m.mu.Lock()
}

// LockFirst is Lock for who is in a hurry.
func (m *Mutex) LockFirst() {
	if m.spin() {
		return
	}
	m.waiting.Add(1)
	m.mu.Lock()
	m.waiting.Add(-1)
}

// spin takes the lock if it becomes free in a moment. A sync.Mutex spins as well, but
// not while other goroutines are ready to run, which is when it matters here.
func (m *Mutex) spin() bool {
	for range tries {
		if m.mu.TryLock() {
			return true
		}
		for range pause {
			m.waiting.Load()
		}
	}
	return false
}

// Unlock is [sync.RWMutex.Unlock], of Lock and of LockFirst.
func (m *Mutex) Unlock() {
	m.mu.Unlock()
	m.yield()
}

// RLock is [sync.RWMutex.RLock].
func (m *Mutex) RLock() { m.mu.RLock() }

// RUnlock is [sync.RWMutex.RUnlock].
func (m *Mutex) RUnlock() {
	m.mu.RUnlock()
	m.yield()
}

func (m *Mutex) yield() {
	for n := 0; n < yields && m.waiting.Load() != 0; n++ {
		runtime.Gosched()
	}
}

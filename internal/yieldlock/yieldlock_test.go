package yieldlock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWhoIsInAHurryRunsFirst: on one processor, who lets go of the lock goes on only after
// the one that waited has run.
func TestWhoIsInAHurryRunsFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, lock := range map[string]func(*Mutex) (unlock func()){
		"Unlock":  func(m *Mutex) func() { m.Lock(); return m.Unlock },
		"RUnlock": func(m *Mutex) func() { m.RLock(); return m.RUnlock },
	} {
		t.Run(name, func(t *testing.T) {
			var m Mutex
			var ran atomic.Bool
			var all sync.WaitGroup
			unlock := lock(&m)
			all.Go(func() {
				m.LockFirst()
				ran.Store(true)
				m.Unlock()
			})
			for m.waiting.Load() == 0 {
				runtime.Gosched()
			}
			for range 3 { // it waits by now, and not only is about to
				runtime.Gosched()
			}
			unlock()
			if !ran.Load() {
				t.Error("who waited has not run when who unlocked goes on")
			}
			all.Wait()
		})
	}
}

func TestMutexExcludes(t *testing.T) {
	var m Mutex
	var all sync.WaitGroup
	n := 0
	for range 4 {
		all.Go(func() {
			for range 1000 {
				m.LockFirst()
				n++
				m.Unlock()
			}
		})
		all.Go(func() {
			for range 1000 {
				m.Lock()
				n++
				m.Unlock()
			}
		})
		all.Go(func() {
			for range 1000 {
				m.RLock()
				if n < 0 || n > 8000 {
					t.Errorf("read %d", n)
				}
				m.RUnlock()
			}
		})
	}
	all.Wait()
	if n != 8000 {
		t.Errorf("want 8000, got %d", n)
	}
	if m.waiting.Load() != 0 {
		t.Error("somebody still waits")
	}
}

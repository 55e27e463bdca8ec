package wakeup

import (
	"sync"
	"sync/atomic"
	"testing"
)

func closedNow(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestSignalWakesWhoIsArmedOnce(t *testing.T) {
	var s Signal
	s.Fire() // nobody
	first, same := s.Arm(), s.Arm()
	if closedNow(first) || !s.Armed() {
		t.Fatal("armed channels are open")
	}
	s.Fire()
	if !closedNow(first) || !closedNow(same) || s.Armed() || closedNow(s.Arm()) {
		t.Error("Fire closes what was armed, and nothing that is armed later")
	}
}

// TestSignalLosesNoWakeUp: a waiter that arms and looks, against one that
// publishes and fires.
func TestSignalLosesNoWakeUp(t *testing.T) {
	var s Signal
	var published atomic.Int64
	var waiters sync.WaitGroup
	const n = 20_000
	for range 4 {
		waiters.Go(func() {
			for published.Load() < n {
				seen := published.Load()
				armed := s.Arm()
				if published.Load() != seen || seen == n {
					continue
				}
				<-armed // hangs, and the test with it, if a wake-up is lost
			}
		})
	}
	for range n {
		published.Add(1)
		s.Fire()
	}
	waiters.Wait()
}

func TestLatchClosesOnceForAll(t *testing.T) {
	var before, after Latch
	done := before.Done()
	if closedNow(done) || before.Closed() {
		t.Fatal("a new latch is open")
	}
	before.Close()
	before.Close()
	after.Close()
	if !closedNow(done) || !closedNow(before.Done()) || !closedNow(after.Done()) || !after.Closed() || !closedNow(Closed()) {
		t.Error("a closed latch is closed for those before and after")
	}
}

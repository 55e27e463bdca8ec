package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchcache/watchcache/bench/peer"
)

var stateSizes = []int{10_000, 100_000, 1_000_000}

// BenchmarkInitial: a new watcher gets the state. How long until it has the first
// object and, for each of them, until it has the last; what it allocates.
func BenchmarkInitial(b *testing.B) {
	cases(b, peer.Initial, "objects", stateSizes, func(b *testing.B, p peer.Peer, n int) {
		f := newFleet(b, p, peer.Config{Initial: objects(n)})
		defer f.close()
		var first time.Duration
		rounds, begin := 0, now()
		for b.Loop() {
			start := time.Now()
			if err := takeState(f.store, n, func() { first += time.Since(start) }); err != nil {
				b.Fatal(err)
			}
			rounds++
		}
		begin.per(b, rounds*n, "object")
		b.ReportMetric(float64(first)/1e3/float64(rounds), "first-µs")
	})
}

// takeState starts a watcher that takes the state of n objects, and leaves.
func takeState(store peer.Store, n int, first func()) error {
	w, err := store.Watch(peer.Start{State: true})
	if err != nil {
		return err
	}
	defer w.Stop() // a watcher that nobody reads would hold up some writers
	got := 0
	if err := w.Each(func(int64, int64) bool {
		if got++; got == 1 {
			first()
		}
		return got < n
	}); err != nil {
		return fmt.Errorf("after %d objects: %w", got, err)
	}
	return nil
}

// BenchmarkInitialWriter: how long a writer is held up, at the most, while watchers
// start together and take the state of 100,000 objects: in each of the rounds, and on
// average over them. With watchers=0 it is undisturbed. A peer may end watchers before
// they have the state: those are counted, of those that started.
func BenchmarkInitialWriter(b *testing.B) {
	cases(b, peer.Initial, "watchers", []int{0, 10, 50}, func(b *testing.B, p peer.Peer, watchers int) {
		n := 100_000
		if p.MaxObjects > 0 || testing.Short() {
			n = 10_000
		}
		f := newFleet(b, p, peer.Config{Initial: objects(n)})
		defer f.close()
		f.watch(1, 0) // else a store that only queues would have no end of its queue
		f.burst(1)
		var sum, slowest time.Duration
		rounds := 0
		var ended atomic.Int64
		for b.Loop() {
			held := f.heldUp(watchers, n, &ended)
			sum, slowest = sum+held, max(slowest, held)
			rounds++
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(sum)/1e3/float64(rounds), "held-up-µs")
		b.ReportMetric(float64(slowest)/1e3, "slowest-µs")
		if watchers > 0 {
			b.ReportMetric(float64(ended.Load())/float64(rounds*watchers), "ended/watcher")
		}
	})
}

const writesAtATime = 10

// heldUp writes until the watchers have the state, and returns the slowest write.
// Undisturbed, it writes for 50 ms.
func (f *fleet) heldUp(watchers, n int, ended *atomic.Int64) (slowest time.Duration) {
	var all sync.WaitGroup
	var over atomic.Bool
	if watchers == 0 {
		time.AfterFunc(50*time.Millisecond, func() { over.Store(true) })
	}
	for range watchers {
		all.Go(func() {
			if takeState(f.store, n, func() {}) != nil {
				ended.Add(1)
			}
		})
	}
	go func() {
		if all.Wait(); watchers > 0 {
			over.Store(true)
		}
	}()
	for !over.Load() {
		f.aim(writesAtATime)
		for range writesAtATime {
			begin := time.Now()
			f.put()
			slowest = max(slowest, time.Since(begin))
		}
		f.await()
		time.Sleep(100 * time.Microsecond) // it is the watchers' time that is wanted, not a writer that fills it
	}
	return slowest
}

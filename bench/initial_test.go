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

// BenchmarkInitialWriter: how long a write takes while watchers start together and take
// the state of 100,000 objects: quantiles of the writes of all rounds, and the slowest.
// The control is the same with watchers of another store of the peer: what the processors
// and the collector cost a writer whose own store nobody disturbs. With watchers=0 there
// are none. A writer that has to wait for a lock waits for a processor after it: for how
// long is seen from how late it wakes from its sleep. A peer may end watchers before they
// have the state: those are counted, of those that started.
func BenchmarkInitialWriter(b *testing.B) {
	each(b, peer.Initial, func(b *testing.B, p peer.Peer) {
		b.Run("of=itself", func(b *testing.B) {
			with(b, p, "watchers", []int{0, 10, 50}, func(b *testing.B, n int) { initialWriter(b, p, n, false) })
		})
		b.Run("of=another", func(b *testing.B) {
			with(b, p, "watchers", []int{10, 50}, func(b *testing.B, n int) { initialWriter(b, p, n, true) })
		})
	})
}

func initialWriter(b *testing.B, p peer.Peer, watchers int, another bool) {
	cfg := peer.Config{Initial: objects(100_000)}
	if p.MaxObjects > 0 || testing.Short() {
		cfg.Initial = cfg.Initial[:10_000]
	}
	f := newFleet(b, p, cfg)
	defer f.close()
	f.watch(1, 0) // else a store that only queues would have no end of its queue
	f.burst(1)
	watched := f.store
	if another {
		g := newFleet(b, p, cfg)
		defer g.close()
		watched = g.store
	}
	var ended atomic.Int64
	var wakes latencies
	started := 0
	round := func() {
		f.writeWhile(&wakes, func() {
			if watchers == 0 {
				time.Sleep(50 * time.Millisecond)
				return
			}
			var all sync.WaitGroup
			for range watchers {
				all.Go(func() {
					if takeState(watched, len(cfg.Initial), func() {}) != nil {
						ended.Add(1)
					}
				})
			}
			all.Wait()
		})
		started += watchers
	}
	for b.Loop() {
		round()
	}
	for f.lat.few() && !testing.Short() {
		round()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(ended.Load()), "ended-watchers")
	b.ReportMetric(float64(started), "of-watchers")
	f.lat.report(b, "")
	wakes.report(b, "late-")
}

const writesAtATime = 10

// writeWhile writes until something is over, and adds how long each write took, and how
// late it wakes in between.
func (f *fleet) writeWhile(wakes *latencies, something func()) {
	var over atomic.Bool
	go func() {
		something()
		over.Store(true)
	}()
	took := make([]float64, writesAtATime)
	for !over.Load() {
		f.aim(writesAtATime)
		for i := range took {
			begin := time.Now()
			f.put()
			took[i] = float64(time.Since(begin))
		}
		f.lat.add(took)
		f.await()
		const pause = 100 * time.Microsecond // it is the watchers' time that is wanted, not a writer that fills it
		begin := time.Now()
		time.Sleep(pause)
		wakes.add([]float64{float64(time.Since(begin) - pause)})
	}
}

package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkSlow is what watchers that stop reading cost the one that reads on, and
// the writer: the shape of Kubernetes' BenchmarkSlowWatcherTax. The stalled ones take
// one event and no more; where they reconnect they do so every 500 ms, with the state,
// as clients do that were ended. It runs for ten seconds: for a p99 at 100 events a
// second, and for a p99.9 at 1,000.
func BenchmarkSlow(b *testing.B) {
	each(b, peer.Slow, func(b *testing.B, p peer.Peer) {
		for _, rate := range []int{100, 1000} {
			for _, reconnect := range []bool{false, true} {
				if reconnect && rate == 1000 && p.Cannot[peer.Storm] != "" {
					continue
				}
				b.Run(fmt.Sprintf("rate=%d/reconnect=%v", rate, reconnect), func(b *testing.B) {
					sizes := []int{0, 1, 10, 100}
					if reconnect {
						sizes = []int{100}
					}
					with(b, p, "stalled", sizes, func(b *testing.B, stalled int) { slow(b, p, rate, stalled, reconnect) })
				})
			}
		}
	})
}

func slow(b *testing.B, p peer.Peer, rate, stalled int, reconnect bool) {
	f := newFleet(b, p, peer.Config{Initial: objects(keysWritten)})
	defer f.close()
	var ended atomic.Int64
	over := make(chan struct{})
	var sleepers sync.WaitGroup
	for range stalled {
		sleepers.Go(func() { stall(b, f.store, reconnect, over, &ended) })
	}
	defer sleepers.Wait()
	defer close(over)
	f.watch(1, 1)
	f.burst(1)
	var slowest time.Duration
	for b.Loop() {
		n := paced(rate, 10)
		f.aim(n)
		pace(rate, n, func() {
			begin := time.Now()
			f.put()
			slowest = max(slowest, time.Since(begin))
		})
		f.await()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(slowest)/1e3, "slowest-commit-µs")
	b.ReportMetric(float64(ended.Load()), "ended-stalled")
	f.report()
	f.lat.report(b, "")
}

// stall watches, takes one event, and stops reading, until it is over, or time to
// connect again.
func stall(b *testing.B, store peer.Store, reconnect bool, over chan struct{}, ended *atomic.Int64) {
	for {
		w, err := store.Watch(peer.Start{State: true})
		if err != nil {
			b.Error(err)
			return
		}
		wake, gone := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			w.Each(func(int64, int64) bool {
				<-wake
				return true
			})
		}()
		var again <-chan time.Time
		if reconnect {
			again = time.After(time.Second / 2)
		}
		isOver := false
		select {
		case <-over:
			isOver = true
		case <-again:
		}
		close(wake)
		select {
		case <-gone:
			ended.Add(1)
		case <-time.After(time.Second / 10): // it goes on reading: nobody has ended it
			w.Stop()
			<-gone
		}
		if isOver {
			return
		}
	}
}

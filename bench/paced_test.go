package bench

import (
	"fmt"
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkPaced: events at a rate, in events a second; what a delivery takes in CPU
// time of the whole process, and how long it takes until it is there, for ten of the
// watchers.
func BenchmarkPaced(b *testing.B) {
	each(b, peer.Paced, func(b *testing.B, p peer.Peer) {
		for _, rate := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
				with(b, p, "watchers", []int{10, 100, 1000}, func(b *testing.B, watchers int) {
					f := newFleet(b, p, peer.Config{})
					defer f.close()
					f.watch(watchers, 10)
					f.burst(1)
					n, rounds, begin := paced(rate, 2), 0, now()
					for b.Loop() {
						f.aim(n)
						pace(rate, n, f.put)
						f.await()
						rounds++
					}
					begin.per(b, rounds*n*watchers, "delivery")
					f.report()
					f.lat.report(b, "")
				})
			})
		}
	})
}

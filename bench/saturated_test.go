package bench

import (
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkSaturated: all watchers drain as fast as they can. The writer writes a
// burst and waits for the slowest; its work is in the figures. The burst is as long
// as the peer bears without losing events or ending watchers: 10, 100, or 4,096 (1,000
// with 10,000 watchers).
func BenchmarkSaturated(b *testing.B) {
	cases(b, peer.Saturated, "watchers", []int{1, 10, 100, 1000, 10000}, func(b *testing.B, p peer.Peer, watchers int) {
		f := newFleet(b, p, peer.Config{})
		defer f.close()
		f.watch(watchers, 0)
		burst := keysWritten // so that who joins a key's changes has none to join
		if watchers > 1000 {
			burst = 1000 // a channel takes a microsecond for each
		}
		if p.MaxWatchers > 0 || testing.Short() {
			burst = 100 // a thousand times slower
		}
		burst = f.most(burst)
		f.burst(burst) // now everybody is there
		n, begin := 0, now()
		for b.Loop() {
			f.burst(burst)
			n += burst * watchers
		}
		begin.per(b, n, "delivery")
		f.report()
	})
}

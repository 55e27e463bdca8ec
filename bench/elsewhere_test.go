package bench

import (
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkElsewhere: one event, which one watcher gets, while many others watch other
// keys. The state, and the harness's goroutines that a collection scans, are as many
// however many watch: who does not watch is parked.
func BenchmarkElsewhere(b *testing.B) {
	const most = 10_000
	cases(b, peer.Elsewhere, "watchers", []int{0, 100, 1000, most}, func(b *testing.B, p peer.Peer, watchers int) {
		f := newFleet(b, p, peer.Config{Initial: objects(keysWritten + most)})
		defer f.close()
		for i := range watchers {
			f.watchAside(key(keysWritten + i))
		}
		over := make(chan struct{})
		defer close(over)
		for range most - watchers {
			f.all.Go(func() { <-over })
		}
		f.watch(1, 0)
		f.rewrite()
		const some = 100
		f.write(some)
		n, begin := 0, now()
		for b.Loop() {
			f.write(some)
			n += some
		}
		begin.per(b, n, "event")
		f.report()
	})
}

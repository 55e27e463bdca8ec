package bench

import (
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkElsewhere: one event, which one watcher gets, while many others watch other
// keys.
func BenchmarkElsewhere(b *testing.B) {
	cases(b, peer.Elsewhere, "watchers", []int{0, 100, 1000, 10000}, func(b *testing.B, p peer.Peer, watchers int) {
		f := newFleet(b, p, peer.Config{Initial: objects(keysWritten + watchers)})
		defer f.close()
		for i := range watchers {
			w, err := f.store.Watch(peer.Start{Key: key(keysWritten + i)})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Stop()
			f.all.Go(func() {
				w.Each(func(int64, int64) bool {
					b.Error("an event of another key")
					return true
				})
			})
		}
		f.watch(1, 0)
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

package bench

import (
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkResume: a watcher comes back after 50,000 events and takes them.
func BenchmarkResume(b *testing.B) {
	const missed = 50_000
	each(b, peer.Resume, func(b *testing.B, p peer.Peer) {
		f := newFleet(b, p, peer.Config{Initial: objects(keysWritten), History: 1 << 16})
		defer f.close()
		f.watch(1, 0)
		f.burst(1)
		from := f.store.Revision()
		f.write(missed)
		rounds, begin := 0, now()
		for b.Loop() {
			w, err := f.store.Watch(peer.Start{After: from})
			if err != nil {
				b.Fatal(err)
			}
			got, want := 0, f.seq-missed+1
			if err := w.Each(func(seq, sent int64) bool {
				if seq != want {
					f.lost.Add(1)
				}
				want = seq + 1
				got++
				return got < missed
			}); err != nil {
				b.Fatalf("after %d events: %v", got, err)
			}
			w.Stop()
			f.due += missed
			rounds++
		}
		begin.per(b, rounds*missed, "event")
		f.report()
	})
}

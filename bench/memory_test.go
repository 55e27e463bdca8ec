package bench

import (
	"runtime"
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkMemory: what a watcher that waits holds, in bytes, with the stacks of the
// goroutines that the peer has for it, but without its consumer's; and what an event in
// history does, with its object.
func BenchmarkMemory(b *testing.B) {
	each(b, peer.Memory, func(b *testing.B, p peer.Peer) {
		b.Run("of=watcher", func(b *testing.B) {
			with(b, p, "watchers", []int{100, 1000, 10000}, func(b *testing.B, watchers int) {
				f := newFleet(b, p, peer.Config{})
				defer f.close()
				f.watch(1, 0)
				f.burst(1)
				var bytes, goroutines float64
				for b.Loop() {
					before, running := inUse(), runtime.NumGoroutine()
					all := make([]peer.Watcher, watchers)
					for i := range all {
						w, err := f.store.Watch(peer.Start{})
						if err != nil {
							b.Fatal(err)
						}
						all[i] = w
					}
					bytes = float64(inUse()-before) / float64(watchers)
					goroutines = float64(runtime.NumGoroutine()-running) / float64(watchers)
					for _, w := range all {
						w.Stop()
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(bytes, "B/watcher")
				b.ReportMetric(goroutines, "goroutines/watcher")
			})
		})
		if p.Cannot[peer.Resume] != "" {
			return // there is no history
		}
		b.Run("of=event", func(b *testing.B) {
			const n = 50_000
			var bytes float64
			for b.Loop() {
				f := newFleet(b, p, peer.Config{Initial: objects(keysWritten), History: 1 << 16})
				f.watch(1, 0)
				f.burst(1)
				before := inUse()
				f.write(n)
				bytes = float64(inUse()-before) / n
				f.close()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bytes, "B/event")
		})
	})
}

// inUse is what the heap and the stacks hold after a collection.
func inUse() int64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

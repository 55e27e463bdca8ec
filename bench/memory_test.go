package bench

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/exp/stats"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkMemory: what a watcher that waits holds, and what an event in history does,
// in bytes; the median of the rounds.
//
// A watcher has taken an event and waits for the next. Counted are what is on the heap
// for it then, and the stacks of the goroutines that the peer starts for it. Not counted
// is the consumer: its goroutine and closure are there before, and how much its stack
// grows in Each is as much the runtime's doing, and differs from run to run.
//
// An event is counted with its object and its place in history: what a store with
// historyKept events has more than one with the same state that was opened for no more
// than one event.
func BenchmarkMemory(b *testing.B) {
	each(b, peer.Memory, func(b *testing.B, p peer.Peer) {
		b.Run("of=watcher", func(b *testing.B) {
			with(b, p, "watchers", []int{100, 1000, 10000}, func(b *testing.B, watchers int) {
				var bytes, goroutines []float64
				for b.Loop() {
					held, running := idle(b, p, watchers)
					bytes = append(bytes, float64(held)/float64(watchers))
					goroutines = append(goroutines, float64(running)/float64(watchers))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median(bytes), "B/watcher")
				b.ReportMetric(median(goroutines), "goroutines/watcher")
			})
		})
		if p.Cannot[peer.Resume] != "" {
			return // there is no history
		}
		b.Run("of=event", func(b *testing.B) {
			var bytes []float64
			for b.Loop() {
				more := kept(b, p, historyKept, historyKept) - kept(b, p, 1, 0)
				bytes = append(bytes, float64(more)/historyKept)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(bytes), "B/event")
		})
	})
}

const historyKept = 1 << 16

// idle returns what watchers that wait have in a new store, and their goroutines.
func idle(b *testing.B, p peer.Peer, watchers int) (bytes int64, goroutines int) {
	f := newFleet(b, p, peer.Config{})
	defer f.close()
	f.watch(1, 0)
	f.burst(1)
	all := make([]late, watchers)
	f.running = slices.Grow(f.running, watchers)
	for i := range all {
		all[i] = make(late)
		defer close(all[i])
		want := f.seq + 1
		f.all.Go(func() { f.follow(all[i], want, false) })
	}
	heap, stacks := inUse()
	running := runtime.NumGoroutine()
	for range all {
		w, err := f.store.Watch(peer.Start{})
		if err != nil {
			b.Fatal(err)
		}
		f.running = append(f.running, w)
	}
	_, stacksAfter := inUse() // before the consumers' grow
	for i, l := range all {
		l <- f.running[1+i]
	}
	f.burst(1)
	heapAfter, _ := inUse()
	return heapAfter - heap + stacksAfter - stacks, runtime.NumGoroutine() - running
}

// late is the place of a watcher that is started later. Closed, it ends.
type late chan peer.Watcher

func (l late) Each(visit func(seq, sent int64) bool) error {
	w, ok := <-l
	if !ok {
		return nil
	}
	return w.Each(visit)
}

func (l late) Stop() {}

// kept returns what a store has that was opened for a history and has n events in it.
func kept(b *testing.B, p peer.Peer, history, n int) int64 {
	before, _ := inUse()
	f := newFleet(b, p, peer.Config{Initial: objects(keysWritten), History: history})
	defer f.close()
	f.watch(1, 0)
	f.burst(1)
	f.write(n)
	after, _ := inUse()
	return after - before
}

// inUse is what the heap and the stacks hold when collections, and what runs after
// them, free no more.
func inUse() (heap, stacks int64) {
	var m runtime.MemStats
	for range 20 {
		runtime.GC()
		runtime.GC() // the first one's sweep is over
		runtime.ReadMemStats(&m)
		h, s := int64(m.HeapAlloc), int64(m.StackInuse)
		if heap > 0 && h >= heap && s >= stacks {
			break
		}
		heap, stacks = h, s
	}
	return heap, stacks
}

func median(all []float64) float64 { return stats.Quantiles(all, 0.5)[0] }

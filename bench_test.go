package watchcache_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/watchcache/watchcache"
)

// object is what the benchmarks watch: T is a pointer to it.
type object struct {
	id   int
	last bool // of a burst
}

// fanOut is what a user would write without this library: a map of channels
// behind a mutex.
type fanOut struct {
	mu    sync.Mutex
	state map[string]*object
	subs  map[int]chan watchcache.Event[*object]
}

func (f *fanOut) put(key string, o *object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	prev := f.state[key]
	f.state[key] = o
	ev := watchcache.Event[*object]{Type: watchcache.Modified, Key: key, Object: o, Prev: prev}
	for _, ch := range f.subs {
		ch <- ev
	}
}

// A burst is what deliver, drain and bare deliver at a time. A consumer knows by the
// object that it has all of it: to count would cost as much as much of what is measured.
const burst = 4096

// inBurst returns the object of a burst's event i.
func inBurst(i int) *object {
	if i == burst-1 {
		return endOfBurst
	}
	return midBurst
}

var midBurst, endOfBurst = &object{id: 1}, &object{id: 1, last: true}

// deliver sends bursts of events through watchers that all drain at full speed;
// the writer waits after each burst for the slowest, so that nobody is overrun.
// The writer's own work is in the figure.
func deliver(b *testing.B, watchers int, start func(caughtUp func(), i int), put func(i int)) {
	var left atomic.Int64
	done := make(chan struct{}, 1)
	left.Store(int64(watchers))
	for i := range watchers {
		start(func() {
			if left.Add(-1) == 0 {
				done <- struct{}{}
			}
		}, i)
	}
	b.ReportAllocs()
	var events int
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		left.Store(int64(watchers))
		for i := range burst {
			put(i)
		}
		<-done
		events += burst
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events)/float64(watchers), "ns/delivery")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(events)/float64(watchers), "allocs/delivery")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDelivery compares the library with channels: an event taken by a
// watcher, all watchers draining. impl=watchcache has the writer's own work in its
// figure, as impl=channels must; impl=watchcache-drain has not.
func BenchmarkDelivery(b *testing.B) {
	for _, watchers := range []int{1, 10, 100, 1000, 10000} {
		b.Run(fmt.Sprintf("impl=watchcache/watchers=%d", watchers), func(b *testing.B) {
			c, _ := watchcache.New(watchcache.Options[*object]{})
			defer c.Close()
			var wg sync.WaitGroup
			start := func(caughtUp func(), i int) {
				w, err := c.Watch(context.Background(), watchcache.WatchOptions[*object]{Start: watchcache.FromNow()})
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					sum := 0
					for ev, err := range w.Events() {
						if err != nil {
							break
						}
						sum += ev.Object.id
						if ev.Object.last {
							caughtUp()
						}
					}
				})
			}
			deliver(b, watchers, start, func(i int) { c.Put("key", inBurst(i)) })
			c.Close()
			wg.Wait()
		})
		b.Run(fmt.Sprintf("impl=watchcache-drain/watchers=%d", watchers), func(b *testing.B) { drain(b, watchers) })
		b.Run(fmt.Sprintf("impl=bare-loop/watchers=%d", watchers), func(b *testing.B) { bare(b, watchers) })
		b.Run(fmt.Sprintf("impl=channels/watchers=%d", watchers), func(b *testing.B) {
			f := &fanOut{state: map[string]*object{}, subs: map[int]chan watchcache.Event[*object]{}}
			var wg sync.WaitGroup
			start := func(caughtUp func(), i int) {
				ch := make(chan watchcache.Event[*object], 100)
				f.subs[i] = ch
				wg.Go(func() {
					sum := 0
					for ev := range ch {
						sum += ev.Object.id
						if ev.Object.last {
							caughtUp()
						}
					}
				})
			}
			deliver(b, watchers, start, func(i int) { f.put("key", inBurst(i)) })
			for _, ch := range f.subs {
				close(ch)
			}
			wg.Wait()
		})
	}
}

// bare is what the language alone costs: as many goroutines, each ranging over the
// same events in a slice, by value, with nothing else to do. No delivery through
// iter.Seq2 can be faster.
func bare(b *testing.B, watchers int) {
	events := make([]watchcache.Event[*object], burst)
	for i := range events {
		events[i].Object = inBurst(i)
	}
	var total atomic.Int64
	n := 0
	for b.Loop() {
		var wg sync.WaitGroup
		for range watchers {
			wg.Go(func() {
				sum, caughtUp := 0, func() { total.Add(1) }
				for ev, err := range inOrder(events) {
					if err != nil {
						break
					}
					sum += ev.Object.id
					if ev.Object.last {
						caughtUp()
					}
				}
			})
		}
		wg.Wait()
		n += watchers * burst
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/delivery")
}

// inOrder is not inlined, as no iterator is that looks at anything before it yields.
//
//go:noinline
func inOrder[T any](events []watchcache.Event[T]) iter.Seq2[watchcache.Event[T], error] {
	return func(yield func(watchcache.Event[T], error) bool) {
		for i := range events {
			if !yield(events[i], nil) {
				return
			}
		}
	}
}

// drain is the delivery alone: a burst is written while the clock stands and the
// watchers wait, and then all of them take it at once.
func drain(b *testing.B, watchers int) {
	c, _ := watchcache.New(watchcache.Options[*object]{})
	defer c.Close()
	var wg sync.WaitGroup
	var left atomic.Int64
	done := make(chan struct{}, 1)
	gates := make([]chan struct{}, watchers)
	for i := range gates {
		gates[i] = make(chan struct{}, 1)
		w, err := c.Watch(context.Background(), watchcache.WatchOptions[*object]{Start: watchcache.FromNow()})
		if err != nil {
			b.Fatal(err)
		}
		caughtUp := func() {
			if left.Add(-1) == 0 {
				done <- struct{}{}
			}
			<-gates[i]
		}
		wg.Go(func() {
			<-gates[i]
			sum := 0
			for ev, err := range w.Events() {
				if err != nil {
					break
				}
				sum += ev.Object.id
				if ev.Object.last {
					caughtUp()
				}
			}
		})
	}
	events := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		left.Store(int64(watchers))
		for i := range burst {
			c.Put("key", inBurst(i))
		}
		b.StartTimer()
		for _, gate := range gates {
			gate <- struct{}{}
		}
		<-done
		events += burst
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events)/float64(watchers), "ns/delivery")
	b.ReportMetric(0, "ns/op")
	c.Close()
	for _, gate := range gates {
		close(gate)
	}
	wg.Wait()
}

// BenchmarkReplay is one goroutine that reads the whole of a full history.
func BenchmarkReplay(b *testing.B) {
	c, _ := watchcache.New(watchcache.Options[*object]{})
	defer c.Close()
	for i := range 16384 {
		c.Put(fmt.Sprint(i%1000), &object{id: i})
	}
	oldest := c.Oldest()
	n := 0
	for b.Loop() {
		w, _ := c.Watch(context.Background(), watchcache.WatchOptions[*object]{Start: watchcache.After(oldest)})
		sum, k := 0, 0
		for ev := range w.Events() {
			sum += int(ev.Revision)
			if k++; k == 16384 {
				break
			}
		}
		n += k
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
}

// filled returns a cache with n objects, whose keys were put in no order.
func filled(b *testing.B, n int) (*watchcache.Cache[*object], []string) {
	c, err := watchcache.New(watchcache.Options[*object]{})
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("pods/%07d", i*7919%n)
	}
	for i, k := range keys {
		c.Put(k, &object{id: i})
	}
	return c, keys
}

// BenchmarkApply is one change at 100,000 objects, of a key that is at hand, as one
// is that came with a request, in a string of its own: the keys come in no order,
// but lie in memory one behind the other.
func BenchmarkApply(b *testing.B) {
	run := func(name string, before func(*watchcache.Cache[*object])) {
		b.Run(name, func(b *testing.B) {
			c, keys := filled(b, 100_000)
			defer c.Close()
			before(c)
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for i := range keys {
				keys[i] = strings.Clone(keys[i])
			}
			o := &object{}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				c.Put(keys[i], o)
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
	run("watchers=none", func(c *watchcache.Cache[*object]) {})
	run("watchers=10000-elsewhere", func(c *watchcache.Cache[*object]) {
		for i := range 10000 {
			c.Watch(context.Background(), watchcache.WatchOptions[*object]{Start: watchcache.FromNow(), Key: fmt.Sprintf("other-%d", i)})
		}
	})
	run("watchers=1000-stalled-initial", func(c *watchcache.Cache[*object]) {
		for range 1000 {
			w, _ := c.Watch(context.Background(), watchcache.WatchOptions[*object]{Stall: watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: watchcache.NoLimit}}})
			w.Next(context.Background())
		}
	})
	run("watchers=1000-stalled-streaming", func(c *watchcache.Cache[*object]) {
		for range 1000 {
			c.Watch(context.Background(), watchcache.WatchOptions[*object]{Start: watchcache.FromNow(), Stall: watchcache.Resync{}})
		}
	})
}

// BenchmarkWatchState is a watcher that starts with a state of 1,000,000 objects.
func BenchmarkWatchState(b *testing.B) {
	c, _ := filled(b, 1_000_000)
	defer c.Close()
	b.Run("start", func(b *testing.B) {
		ws := make([]*watchcache.Watcher[*object], 0, 1000)
		b.ReportAllocs()
		for b.Loop() {
			w, _ := c.Watch(context.Background(), watchcache.WatchOptions[*object]{})
			ws = append(ws, w)
			if len(ws) == cap(ws) {
				b.StopTimer()
				for _, w := range ws {
					w.Stop()
				}
				ws = ws[:0]
				b.StartTimer()
			}
		}
	})
	b.Run("iterate", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			w, _ := c.Watch(context.Background(), watchcache.WatchOptions[*object]{})
			for ev := range w.Events() {
				n++
				if ev.Type == watchcache.Synced {
					break
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/object")
	})
}

// BenchmarkSlowestCommit is how long the slowest of many commits takes at
// 1,000,000 objects: undisturbed, and while 50 watchers at a time start together
// with the state and take the first object. To tell waiting from what copying and
// collecting memory cost anywhere in the process, the same is done with 50 watchers
// of another cache, which the writer writes as well and whose commits are not
// measured.
func BenchmarkSlowestCommit(b *testing.B) {
	c, keys := filled(b, 1_000_000)
	defer c.Close()
	other, _ := filled(b, 1_000_000)
	defer other.Close()
	measure := func(b *testing.B, watchers int, watched *watchcache.Cache[*object]) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range watchers {
			wg.Go(func() {
				for range start {
					w, err := watched.Watch(ctx, watchcache.WatchOptions[*object]{})
					if err != nil {
						return
					}
					if _, err := w.Next(ctx); err != nil {
						return
					}
					w.Stop()
				}
			})
		}
		const commits = 20_000
		var took []time.Duration
		for b.Loop() {
			for i := range commits {
				if watchers > 0 && i%1000 == 0 {
					for range watchers {
						start <- struct{}{}
					}
				}
				begin := time.Now()
				c.Put(keys[i*104729%len(keys)], &object{id: i})
				took = append(took, time.Since(begin))
				other.Put(keys[i*104729%len(keys)], &object{id: i})
			}
		}
		close(start)
		cancel()
		wg.Wait()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(took[len(took)*999/1000].Nanoseconds()), "p99.9-ns")
		b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns")
	}
	b.Run("watchers=0", func(b *testing.B) { measure(b, 0, c) })
	b.Run("watchers=50-of-another", func(b *testing.B) { measure(b, 50, other) })
	b.Run("watchers=50", func(b *testing.B) { measure(b, 50, c) })
}

// BenchmarkIdleWatcher is the memory of 100,000 watchers that nobody consumes.
func BenchmarkIdleWatcher(b *testing.B) {
	starts := map[string]func(i int) watchcache.WatchOptions[*object]{
		"now": func(int) watchcache.WatchOptions[*object] {
			return watchcache.WatchOptions[*object]{Start: watchcache.FromNow()}
		},
		"state": func(int) watchcache.WatchOptions[*object] { return watchcache.WatchOptions[*object]{} },
		"key-each": func(i int) watchcache.WatchOptions[*object] {
			return watchcache.WatchOptions[*object]{Start: watchcache.FromNow(), Key: fmt.Sprint(i)}
		},
	}
	for _, name := range []string{"now", "state", "key-each"} {
		b.Run("start="+name, func(b *testing.B) {
			c, _ := filled(b, 1000)
			defer c.Close()
			const n = 100_000
			var bytes uint64
			before := runtime.NumGoroutine()
			for b.Loop() {
				watchers := make([]*watchcache.Watcher[*object], n)
				bytes = retained(func() {
					for i := range watchers {
						watchers[i], _ = c.Watch(context.Background(), starts[name](i))
					}
				})
				for _, w := range watchers {
					w.Stop()
				}
			}
			b.ReportMetric(float64(bytes)/n, "B/watcher")
			b.ReportMetric(float64(runtime.NumGoroutine()-before), "goroutines")
		})
	}
}

// BenchmarkEventMemory is what an event in history costs, beside its own size.
func BenchmarkEventMemory(b *testing.B) {
	const n = 1 << 18
	var bytes uint64
	for b.Loop() {
		c, _ := watchcache.New(watchcache.Options[*object]{Capacity: n})
		o := &object{}
		bytes = retained(func() {
			for range n {
				c.Put("key", o)
			}
		})
		c.Close()
	}
	b.ReportMetric(float64(bytes)/n, "B/event")
	b.ReportMetric(float64(unsafe.Sizeof(watchcache.Event[*object]{})), "B/own-size")
}

// retained returns how many bytes of heap f leaves behind.
func retained(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return after.HeapAlloc - before.HeapAlloc
}

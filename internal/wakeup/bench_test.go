package wakeup

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkWake is what it takes to wake 1,000 goroutines and have them asleep again,
// for each of them: by what this package has.
func BenchmarkWake(b *testing.B) {
	const sleepers = 1000
	// A way to sleep returns what wakes all, and for each sleeper what sleeps until the
	// number published is another than seen. It may return for nothing.
	var published atomic.Int64
	ways := []struct {
		name string
		make func() (fire func(), bed func() (sleep func(seen int64)))
	}{
		{"rooms", func() (func(), func() func(int64)) {
			var rooms Rooms
			return rooms.Fire, func() func(int64) {
				room := rooms.Room()
				return func(seen int64) {
					if room.Enter(); published.Load() != seen {
						room.Leave()
						return
					}
					room.Sleep()
				}
			}
		}},
		{"signal-select", func() (func(), func() func(int64)) {
			var signal Signal
			return signal.Fire, func() func(int64) {
				own := make(chan struct{})
				return func(seen int64) {
					armed := signal.Arm()
					if published.Load() != seen {
						return
					}
					select {
					case <-armed:
					case <-own:
					}
				}
			}
		}},
		{"signal", func() (func(), func() func(int64)) {
			var signal Signal
			return signal.Fire, func() func(int64) {
				return func(seen int64) {
					armed := signal.Arm()
					if published.Load() != seen {
						return
					}
					<-armed
				}
			}
		}},
	}
	for _, way := range ways {
		b.Run(fmt.Sprintf("impl=%s/sleepers=%d", way.name, sleepers), func(b *testing.B) {
			var pending atomic.Int64
			var over atomic.Bool
			var all sync.WaitGroup
			all.Add(sleepers)
			reached := make(chan struct{})
			fire, bed := way.make()
			start := published.Load()
			for range sleepers {
				sleep := bed()
				go func() {
					defer all.Done()
					for seen := start; !over.Load(); {
						sleep(seen)
						if now := published.Load(); now != seen {
							seen = now
							if pending.Add(-1) == 0 {
								reached <- struct{}{}
							}
						}
					}
				}()
			}
			wakeAll := func() {
				pending.Store(sleepers)
				published.Add(1)
				fire()
				<-reached
			}
			var spent time.Duration
			n := 0
			for b.Loop() {
				begin := time.Now()
				wakeAll()
				spent += time.Since(begin)
				n++
			}
			b.ReportMetric(float64(spent)/float64(n*sleepers), "ns/wake-up")
			b.ReportMetric(0, "ns/op")
			over.Store(true)
			wakeAll()
			all.Wait()
		})
	}
}

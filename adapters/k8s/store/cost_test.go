package store_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// What a delivered event and a watch that waits cost, of the store and of apiserver's own
// cache, before a storage that costs nothing itself. Of an event it is what is spent from
// the storage's watch to the end of the client's use of it, by
//
//	encoding it, shared as either shares it, which is what an API server does;
//	copying it, which is what a client in the process does that is to have its own;
//	looking at it only.
//
// Events come in bursts that even a new watch of apiserver's cache has room for, since it
// ends a watch that lags: see burst.

const (
	burst  = 8 // of 10
	subset = 100
)

// fed is a storage whose watch is a channel.
type fed struct {
	storage.Interface // nil: what is not here is not called

	revision uint64 // the test's
	events   chan watch.Event
}

func (f *fed) IsWatchListSemanticsUnSupported() bool { return true }
func (f *fed) Versioner() storage.Versioner          { return storage.APIObjectVersioner{} }

func (f *fed) GetList(_ context.Context, _ string, _ storage.ListOptions, list k8sruntime.Object) error {
	list.(*example.PodList).ResourceVersion = "1"
	return nil
}

func (f *fed) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return f, nil
}
func (f *fed) ResultChan() <-chan watch.Event                            { return f.events }
func (f *fed) Stop()                                                     {}
func (f *fed) GetCurrentResourceVersion(context.Context) (uint64, error) { return f.revision, nil }
func (f *fed) RequestWatchProgress(context.Context) error                { return nil }
func (f *fed) ReadinessCheck() error                                     { return nil }
func (f *fed) CompactRevision() int64                                    { return 0 }
func (f *fed) EnableResourceSizeEstimation(storage.KeysFunc) error       { return nil }

// put feeds a new state of one of some pods, of 2 KB.
func (f *fed) put() {
	f.revision++
	i := int(f.revision % subset)
	kind := watch.Modified
	if f.revision <= subset+1 {
		kind = watch.Added
	}
	p := pod("ns", "pod"+strconv.Itoa(i), "node"+strconv.Itoa(i))
	p.ResourceVersion = strconv.FormatUint(f.revision, 10)
	p.Annotations = map[string]string{"about": strings.Repeat(p.ResourceVersion+" ", 2000/len(p.ResourceVersion+" "))}
	f.events <- watch.Event{Type: kind, Object: p}
}

// feeding returns a subject before such a storage, which has its pods.
func feeding(b *testing.B, of subject) (*fed, subjectStore) {
	f := &fed{revision: 1, events: make(chan watch.Event, 100)}
	s := of.make(b, f, settings{
		keyFunc:     func(o k8sruntime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) },
		codec:       codec,
		transformer: identity.NewEncryptCheckTransformer(),
	})
	b.Cleanup(s.Stop)
	if err := s.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	for range subset {
		f.put()
	}
	f.seen(b, s)
	return f, s
}

// seen waits until the subject's cache has what was put.
func (f *fed) seen(b *testing.B, s subjectStore) {
	key, want := prefix+"ns/pod"+strconv.Itoa(int(f.revision%subset)), strconv.FormatUint(f.revision, 10)
	wait(b, "the cache to have all pods", func() bool {
		var p example.Pod
		return s.Get(b.Context(), key, storage.GetOptions{ResourceVersion: "0"}, &p) == nil && p.ResourceVersion == want
	})
}

// watchNow begins a watch of what comes.
func (f *fed) watchNow(b *testing.B, s subjectStore) watch.Interface {
	opts := storage.ListOptions{ResourceVersion: strconv.FormatUint(f.revision, 10), Recursive: true, Predicate: storage.Everything}
	return watching(b, &fixture{subjectStore: s}, b.Context(), prefix, opts)
}

// uses are what clients do with an object.
var uses = []struct {
	name string
	use  func(k8sruntime.Object)
}{
	{"encode", func(o k8sruntime.Object) {
		if err := codec.Encode(o, io.Discard); err != nil {
			panic(err)
		}
	}},
	{"copy", func(o k8sruntime.Object) {
		if c, ok := o.(k8sruntime.CacheableObject); ok {
			c.GetObject()
		} else {
			o.DeepCopyObject()
		}
	}},
	{"look", func(k8sruntime.Object) {}},
}

func BenchmarkDelivered(b *testing.B) {
	for _, u := range uses {
		for _, watchers := range []int{1, 10, 100, 1000} {
			for _, of := range []subject{ours, theirs} {
				b.Run(fmt.Sprintf("use=%s/watchers=%d/by=%s", u.name, watchers, of.name), func(b *testing.B) {
					benchmarkDelivered(b, of, watchers, u.use)
				})
			}
		}
	}
}

func benchmarkDelivered(b *testing.B, of subject, watchers int, use func(k8sruntime.Object)) {
	f, s := feeding(b, of)
	var left, ended atomic.Int64
	all := make(chan struct{})
	var running sync.WaitGroup
	watches := make([]watch.Interface, watchers)
	for i := range watches {
		watches[i] = f.watchNow(b, s)
		running.Go(func() {
			for ev := range watches[i].ResultChan() {
				use(ev.Object)
				if left.Add(-1) == 0 {
					all <- struct{}{}
				}
			}
			ended.Add(1)
		})
	}
	begin, events := spentNow(), 0
	for b.Loop() {
		left.Store(int64(burst * watchers))
		for range burst {
			f.put()
		}
		select {
		case <-all:
		case <-time.After(30 * time.Second):
			b.Fatalf("%d events have not come; %d watches have ended", left.Load(), ended.Load())
		}
		events += burst
	}
	end := spentNow()
	deliveries := float64(events * watchers)
	b.ReportMetric(float64(end.cpu-begin.cpu)/deliveries, "cpu-ns/delivery")
	b.ReportMetric(float64(end.allocs-begin.allocs)/deliveries, "allocs/delivery")
	b.ReportMetric(float64(end.bytes-begin.bytes)/deliveries, "B/delivery")
	b.ReportMetric(0, "ns/op")
	for _, w := range watches {
		w.Stop()
	}
	running.Wait()
}

// BenchmarkIdleWatch: the heap and the stacks of watches that have nothing to deliver.
func BenchmarkIdleWatch(b *testing.B) {
	const watchers = 1000
	for _, of := range []subject{ours, theirs} {
		b.Run("by="+of.name, func(b *testing.B) {
			var bytes, goroutines float64
			for b.Loop() {
				f, s := feeding(b, of)
				before, running := held(), runtime.NumGoroutine()
				watches := make([]watch.Interface, watchers)
				for i := range watches {
					watches[i] = f.watchNow(b, s)
				}
				bytes += held() - before
				goroutines += float64(runtime.NumGoroutine() - running)
				for _, w := range watches {
					w.Stop()
				}
				s.Stop()
			}
			b.ReportMetric(bytes/float64(b.N)/watchers, "B/watch")
			b.ReportMetric(goroutines/float64(b.N)/watchers, "goroutines/watch")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// held is the heap and the stacks after a collection, in bytes.
func held() float64 {
	runtime.GC()
	runtime.GC() // what a pool has kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// spent is what the process has used.
type spent struct {
	cpu           time.Duration
	allocs, bytes uint64
}

func spentNow() spent {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return spent{time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.Mallocs, m.TotalAlloc}
}

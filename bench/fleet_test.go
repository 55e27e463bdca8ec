package bench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/exp/stats"

	"github.com/watchcache/watchcache/bench/peer"
	"github.com/watchcache/watchcache/bench/peer/all"
)

// each runs a case for every peer that can do it.
func each(b *testing.B, c peer.Case, run func(b *testing.B, p peer.Peer)) {
	for _, p := range all.Peers {
		if p.Cannot[c] == "" {
			b.Run("peer="+p.Name, func(b *testing.B) { run(b, p) })
		}
	}
}

// with runs a case at the sizes that the peer can bear. In short mode that is the
// first one: it shows that the case runs.
func with(b *testing.B, p peer.Peer, unit string, sizes []int, run func(b *testing.B, size int)) {
	for i, n := range sizes {
		switch {
		case testing.Short() && i > 0,
			unit == "watchers" && p.MaxWatchers > 0 && n > p.MaxWatchers,
			unit == "objects" && p.MaxObjects > 0 && n > p.MaxObjects:
			continue
		}
		b.Run(fmt.Sprintf("%s=%d", unit, n), func(b *testing.B) { run(b, n) })
	}
}

// cases runs a case for every peer, at the sizes that it can bear.
func cases(b *testing.B, c peer.Case, unit string, sizes []int, run func(b *testing.B, p peer.Peer, size int)) {
	each(b, c, func(b *testing.B, p peer.Peer) {
		with(b, p, unit, sizes, func(b *testing.B, size int) { run(b, p, size) })
	})
}

// fleet is a store with its watchers and its writer.
type fleet struct {
	b       *testing.B
	peer    peer.Peer
	store   peer.Store
	keys    []string
	written []*peer.Object // by key, to be written again; nil: each write makes its own
	seq     int64          // of the last write; the writer's own
	running []peer.Watcher // that have to get every write
	aside   []peer.Watcher // that have to get none
	all     sync.WaitGroup
	closing atomic.Bool

	target   atomic.Int64  // who has this write has all
	pending  atomic.Int64  // watchers that have not
	patience *time.Timer   // the writer's, with them
	reached  chan struct{} // pending became 0
	due      int64         // what the watchers should have been given
	lost     atomic.Int64  // what a watcher was not given before the next, or not in order
	mu       sync.Mutex    // one target after the other
	ended    []int64       // the last writes that watchers have that the peer has ended
	asideEnd int           // watchers aside that the peer has ended
	lat      latencies     // of the watchers that measure it, up to the target
}

const keysWritten = 4096 // what is written goes round so many keys

func newFleet(b *testing.B, p peer.Peer, cfg peer.Config) *fleet {
	b.Helper()
	store, err := p.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	f := &fleet{b: b, peer: p, store: store, reached: make(chan struct{}, 1), patience: time.NewTimer(0), seq: int64(len(cfg.Initial))}
	for i := range keysWritten {
		f.keys = append(f.keys, key(i))
	}
	return f
}

func key(i int) string { return fmt.Sprintf("key-%07d", i) }

func objects(n int) []*peer.Object {
	all := make([]*peer.Object, n)
	for i := range all {
		all[i] = &peer.Object{Key: key(i), Seq: int64(i + 1)}
	}
	return all
}

func (f *fleet) close() {
	f.closing.Store(true)
	for _, w := range slices.Concat(f.running, f.aside) {
		w.Stop()
	}
	f.all.Wait()
	f.store.Close()
}

// watch starts watchers that take all there is from now on, and notice what they
// are not given. The first of them measure how long events take.
func (f *fleet) watch(n, measure int) {
	f.b.Helper()
	for i := range n {
		w, err := f.store.Watch(peer.Start{})
		if err != nil {
			f.b.Fatal(err)
		}
		f.running = append(f.running, w)
		want := f.seq + 1
		f.all.Go(func() { f.follow(w, want, i < measure) })
	}
}

func (f *fleet) follow(w peer.Watcher, want int64, measure bool) {
	var took []float64
	var has int64 // the last target
	err := w.Each(func(seq, sent int64) bool {
		if seq != want {
			f.lost.Add(max(seq-want, 1))
		}
		want = seq + 1
		if measure {
			took = append(took, float64(peer.Now()-sent))
		}
		if target := f.target.Load(); seq >= target && target != has {
			has = target
			f.lat.add(took)
			took = took[:0]
			f.caughtUp()
		}
		return true
	})
	if f.closing.Load() || err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, want-1)
	if has != f.target.Load() {
		f.caughtUp()
	}
}

// watchAside starts a watcher of a key that nobody writes.
func (f *fleet) watchAside(key string) {
	f.b.Helper()
	w, err := f.store.Watch(peer.Start{Key: key})
	if err != nil {
		f.b.Fatal(err)
	}
	f.aside = append(f.aside, w)
	f.all.Go(func() {
		w.Each(func(int64, int64) bool {
			f.b.Error("an event of another key")
			return true
		})
		if !f.closing.Load() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.asideEnd++
		}
	})
}

func (f *fleet) caughtUp() {
	if f.pending.Add(-1) == 0 {
		f.reached <- struct{}{}
	}
}

// rewrite makes the objects that are written from now on, so that writes make no
// garbage: a collection has the harness's goroutines to scan, however many there are.
// Only for who waits for all watchers within keysWritten writes.
func (f *fleet) rewrite() { f.written = objects(keysWritten) }

// put writes the next object.
func (f *fleet) put() {
	at := (f.seq + 1) % keysWritten
	if f.written != nil {
		f.putObject(f.written[at])
	} else {
		f.putObject(&peer.Object{Key: f.keys[at]})
	}
}

func (f *fleet) putObject(o *peer.Object) {
	f.seq++
	f.due += int64(len(f.running))
	o.Seq, o.Sent = f.seq, peer.Now()
	if err := f.store.Put(o); err != nil {
		f.b.Fatal(err)
	}
}

// aim makes the n-th write from now on what every watcher has to have that the peer
// has not ended.
func (f *fleet) aim(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := len(f.running) - len(f.ended)
	f.pending.Store(int64(pending))
	f.target.Store(f.seq + int64(n))
	if pending == 0 {
		f.reached <- struct{}{}
	}
}

// most returns n, or how long a burst the peer bears, if that is less.
func (f *fleet) most(n int) int {
	if f.peer.Burst > 0 {
		return min(n, f.peer.Burst)
	}
	return n
}

// write writes n objects, in bursts as long as the peer bears, and at most 100.
func (f *fleet) write(n int) {
	f.b.Helper()
	most := f.most(100)
	for ; n > 0; n -= most {
		f.burst(min(n, most))
	}
}

// burst writes n objects and waits until every watcher has them.
func (f *fleet) burst(n int) {
	f.b.Helper()
	f.aim(n)
	for range n {
		f.put()
	}
	f.await()
}

// await waits until every watcher has what aim said. A peer that loses events may
// have lost the last one: then the next shows it.
func (f *fleet) await() {
	f.b.Helper()
	for range 120 {
		f.patience.Reset(time.Second / 2)
		select {
		case <-f.reached:
			return
		case <-f.patience.C:
			if f.peer.Burst > 0 {
				f.put()
			}
		}
	}
	f.b.Fatalf("%d watchers do not catch up", f.pending.Load())
}

// report reports what watchers were not given, of all that they should have been, and
// how many the peer has ended, of all. Whoever is ended is not given the rest.
func (f *fleet) report() {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.lost.Load()
	for _, has := range f.ended {
		lost += f.seq - has
	}
	f.b.ReportMetric(float64(lost), "lost-events")
	f.b.ReportMetric(float64(f.due), "of-events")
	f.b.ReportMetric(float64(len(f.ended)+f.asideEnd), "ended-watchers")
	f.b.ReportMetric(float64(len(f.running)+len(f.aside)), "of-watchers")
}

// spent is what the process has used so far.
type spent struct {
	wall   time.Time
	cpu    time.Duration
	allocs uint64
}

func now() spent {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return spent{time.Now(), time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.Mallocs}
}

// per reports what n of a unit took since begin.
func (begin spent) per(b *testing.B, n int, unit string) {
	end := now()
	b.ReportMetric(float64(end.wall.Sub(begin.wall))/float64(n), "ns/"+unit)
	b.ReportMetric(float64(end.cpu-begin.cpu)/float64(n), "cpu-ns/"+unit)
	b.ReportMetric(float64(end.allocs-begin.allocs)/float64(n), "allocs/"+unit)
	b.ReportMetric(0, "ns/op")
}

// latencies are how long events took from their write to their visit.
type latencies struct {
	mu  sync.Mutex
	all []float64
}

func (l *latencies) add(some []float64) {
	if len(some) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, some...)
}

const forP99 = 1000 // samples

// few is whether there are too few samples for p99.
func (l *latencies) few() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) < forP99
}

// report reports quantiles, in microseconds: those that there are samples enough for.
// There are none if the peer has ended whoever measures.
func (l *latencies) report(b *testing.B, of string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return
	}
	for _, q := range []struct {
		q       float64
		samples int
		unit    string
	}{{0.5, 1, "p50-µs"}, {0.99, forP99, "p99-µs"}, {0.999, 10_000, "p99.9-µs"}} {
		if len(l.all) >= q.samples {
			b.ReportMetric(stats.Quantiles(l.all, q.q)[0]/1e3, of+q.unit)
		}
	}
	b.ReportMetric(slices.Max(l.all)/1e3, of+"max-µs")
}

// pace calls do at a rate, in events a second, n times. What is late is done at once.
func pace(rate, n int, do func()) {
	begin, every := time.Now(), time.Second/time.Duration(rate)
	for i := range n {
		if d := time.Until(begin.Add(time.Duration(i) * every)); d > 0 {
			time.Sleep(d)
		}
		do()
	}
}

// paced is how many events are paced: for some seconds, or a few, to see that it runs.
func paced(rate, seconds int) int {
	if testing.Short() {
		return 20
	}
	return seconds * rate
}

package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"go.uber.org/goleak"

	"github.com/watchcache/watchcache"
)

// storm is many goroutines that watch, take, stop and leave, and several that
// write, list anew and trim, until the end comes in one of several ways, wherever
// each of them is at that moment.
type storm struct {
	cache *watchcache.Cache[*[1024]byte]
	over  atomic.Bool   // nobody begins anything new
	held  chan struct{} // some consumers stay in their loop's body until it is closed
	all   sync.WaitGroup

	done  atomic.Int64  // operations
	raged chan struct{} // closed when that is enough

	mu      sync.Mutex
	objects []weak.Pointer[[1024]byte]
}

// TestStormsLeaveNothing: registrations, goroutines and retained bytes return to
// zero however a storm ends, and the end waits for no consumer: those that are held
// are let go only after it.
func TestStormsLeaveNothing(t *testing.T) {
	ends := []string{"close", "shutdown", "shutdown cut short", "cancel", "leave"}
	rounds := 2 * len(ends)
	before := heap()
	for round := range rounds {
		end := ends[round%len(ends)]
		s := &storm{held: make(chan struct{}), raged: make(chan struct{})}
		objects := s.rage(t, end, uint64(round))
		s = nil
		goleak.VerifyNone(t)
		runtime.GC()
		runtime.GC()
		kept := 0
		for _, o := range objects {
			if o.Value() != nil {
				kept++
			}
		}
		if kept > 0 {
			t.Errorf("%s: %d of %d objects are kept", end, kept, len(objects))
		}
	}
	if now := heap(); now > before+200_000 {
		t.Errorf("%d bytes are retained, %d before", now, before)
	}
}

// rage lets the storm rage until each of its goroutines has done enough, ends it,
// and returns the objects that were written.
func (s *storm) rage(t *testing.T, end string, seed uint64) []weak.Pointer[[1024]byte] {
	c, err := watchcache.New(watchcache.Options[*[1024]byte]{
		Capacity: 256,
		Indexes:  map[string]func(string, *[1024]byte) []string{"first": func(_ string, o *[1024]byte) []string { return []string{fmt.Sprint(o[0] % 3)} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.cache = c
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const watchers, writers, enough = 24, 3, 2000
	for n := range watchers + writers {
		s.all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for !s.over.Load() {
				if n < watchers {
					s.watch(ctx, r)
				} else {
					s.write(r)
				}
				if s.done.Add(1) == enough {
					close(s.raged)
				}
			}
		})
	}
	<-s.raged
	release := sync.OnceFunc(func() { close(s.held) })
	switch end {
	case "close":
		c.Close()
	case "shutdown":
		release() // it lets consumers take what there is
		if err := c.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	case "shutdown cut short":
		gone, stop := context.WithCancel(ctx)
		stop()
		c.Shutdown(gone)
		c.Close()
	case "cancel":
		cancel()
	}
	s.over.Store(true)
	release()
	cancel()
	s.all.Wait()
	if n := c.Stats().Watchers; n != 0 {
		t.Errorf("%s: %d watchers are left", end, n)
	}
	c.Close()
	return s.objects
}

func (s *storm) write(r *rand.Rand) {
	object := func() *[1024]byte {
		o := &[1024]byte{byte(r.IntN(256))}
		s.mu.Lock()
		s.objects = append(s.objects, weak.Make(o))
		s.mu.Unlock()
		return o
	}
	key := func() string { return fmt.Sprintf("%c/%d", 'a'+r.IntN(3), r.IntN(20)) }
	c := s.cache
	switch r.IntN(20) {
	case 0:
		c.Replace(watchcache.Position{}, func(yield func(watchcache.Item[*[1024]byte], error) bool) {
			for i := range 10 {
				if !yield(watchcache.Item[*[1024]byte]{Key: fmt.Sprintf("a/%d", i), Object: object()}, nil) {
					return
				}
			}
		})
	case 1:
		c.Trim(c.Position())
	case 2:
		c.Replace(watchcache.Position{Epoch: fmt.Sprint(r.Int()), Revision: 1}, func(func(watchcache.Item[*[1024]byte], error) bool) {})
	case 3:
		c.SnapshotAt(c.Oldest().Revision)
	case 4:
		c.Delete(key())
	default:
		c.Apply(watchcache.Commit[*[1024]byte]{Changes: []watchcache.Change[*[1024]byte]{{Key: key(), Object: object()}, {Key: key(), Object: object()}}})
	}
}

// watch is one watcher, from its beginning to its end.
func (s *storm) watch(ctx context.Context, r *rand.Rand) {
	opts := watchcache.WatchOptions[*[1024]byte]{Coalesce: r.IntN(4) == 0}
	switch r.IntN(6) {
	case 0:
		opts.Start = watchcache.FromNow()
	case 1:
		opts.Start = watchcache.After(s.cache.Oldest())
	case 2:
		opts.Prefix = "a/"
	case 3:
		opts.Index = watchcache.IndexValue{Name: "first", Value: "1"}
	case 4:
		opts.Filter = func(_ string, o *[1024]byte) bool { return o[0]%2 == 0 }
	}
	if r.IntN(2) == 0 {
		opts.Stall = watchcache.Resync{}
	}
	w, err := s.cache.Watch(ctx, opts)
	if err != nil {
		return // closed, cancelled, or expired meanwhile
	}
	if r.IntN(3) == 0 { // somebody else may stop it, at any moment
		s.all.Go(w.Stop)
	}
	most := 1 + r.IntN(200)
	switch r.IntN(3) {
	case 0:
		for range w.Events() {
			if most--; most == 0 {
				if r.IntN(8) == 0 {
					<-s.held
				}
				break
			}
		}
	case 1:
		for range w.Channel(2) {
			if most--; most <= 0 || s.over.Load() {
				w.Stop()
			}
		}
	default:
		for range most {
			if _, ok, err := w.TryNext(); err != nil || !ok {
				break
			}
		}
		w.Stop()
	}
}

// A watcher that resumes with a selection of its own looks through history, without a
// lock; a shutdown meanwhile cannot tell what it has to get, and leaves it that.
func TestShutdownWhileAWatcherLooksThroughHistory(t *testing.T) {
	const others = 400_000
	for life := range 10 {
		want := []watchcache.EventType{watchcache.Added}
		var bookmarks time.Duration
		if life%2 == 0 {
			want, bookmarks = append(want, watchcache.Bookmark), time.Hour
		}
		c, _ := watchcache.New(watchcache.Options[int]{Capacity: 2 * others})
		c.Put("mine", 1)
		changes := make([]watchcache.Change[int], 1000)
		for i := range changes {
			changes[i] = watchcache.Change[int]{Key: "x", Object: i}
		}
		for range others / len(changes) {
			c.Apply(watchcache.Commit[int]{Changes: changes})
		}
		var shutdown sync.WaitGroup
		shutdown.Go(func() {
			for c.Stats().Watchers == 0 { // until it is registered
				runtime.Gosched()
			}
			if err := c.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
		w, err := c.Watch(t.Context(), watchcache.WatchOptions[int]{
			Key: "mine", Bookmarks: bookmarks, Start: watchcache.After(watchcache.Position{Epoch: c.Position().Epoch}),
		})
		if err != nil {
			t.Fatal(err)
		}
		var took []watchcache.EventType
		for ev, err := range w.Events() {
			if err == nil {
				took = append(took, ev.Type)
			} else if !errors.Is(err, watchcache.ErrClosed) {
				t.Errorf("ended with %v", err)
			}
		}
		if !slices.Equal(took, want) {
			t.Errorf("took %v; want %v: what was committed, and a last bookmark if it asked for them", took, want)
		}
		shutdown.Wait()
	}
}

// What a watcher has planned is there before anybody can find the watcher, and is not
// looked at by Watch once the watchdog may: the race detector tells.
func TestPlansAreOfOneGoroutineAtATime(t *testing.T) {
	for range 300 {
		c, _ := watchcache.New(watchcache.Options[int]{})
		var shutdown sync.WaitGroup
		shutdown.Go(func() {
			for c.Stats().Watchers == 0 {
			}
			if err := c.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
		w, err := c.Watch(t.Context(), watchcache.WatchOptions[int]{Bookmarks: time.Hour, Start: watchcache.FromNow()})
		if err != nil {
			t.Fatal(err)
		}
		for range w.Events() {
		}
		shutdown.Wait()
	}
	c, _ := watchcache.New(watchcache.Options[int]{})
	defer c.Close()
	atOnce := watchcache.StallFunc(watchcache.StallLimits{InitialIdle: 1}, func(watchcache.Stall) watchcache.Verdict { return watchcache.VerdictWait })
	for range 1000 {
		w, err := c.Watch(t.Context(), watchcache.WatchOptions[int]{Stall: atOnce, Bookmarks: 1, Deadline: time.Now().Add(-time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
	}
}

// Who reads a watcher's position while it takes parts of a revision sees it go
// forwards.
func TestPositionGoesForwardsThroughParts(t *testing.T) {
	const parts = 500_000
	c, _ := watchcache.New(watchcache.Options[int]{Capacity: 2 * parts})
	c.Put("a", 1)
	w, err := c.Watch(t.Context(), watchcache.WatchOptions[int]{Start: watchcache.FromNow()})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		defer c.Shutdown(t.Context())
		for n := range parts {
			c.Apply(watchcache.Commit[int]{Continues: true, Changes: []watchcache.Change[int]{{Key: "a", Object: n}}})
		}
	})
	all.Go(func() {
		for range w.Events() {
		}
	})
	for last := uint32(0); ; {
		p, ok := w.Position()
		if !ok || p.Part < last {
			t.Errorf("at part %d after %d", p.Part, last)
			break
		}
		last = p.Part
		select {
		case <-w.Done():
			all.Wait()
			return
		default:
		}
	}
	w.Stop()
	all.Wait()
}

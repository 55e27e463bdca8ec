package watchcache_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
)

// Section H: the source's trouble.

type sourceEvent = watchcache.SourceEvent[int]

// script is a source that does what its functions say, by the number of the call.
type script struct {
	mu             sync.Mutex
	lists, watches int
	atLeast        []uint64 // what each List was asked for
	list           func(n int) (uint64, string, error)
	watch          func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool)
}

func (s *script) calls() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

func (s *script) List(_ context.Context, atLeast uint64) (watchcache.Position, iter.Seq2[item, error], error) {
	s.mu.Lock()
	s.lists++
	s.atLeast = append(s.atLeast, atLeast)
	n := s.lists
	s.mu.Unlock()
	revision, state, err := s.list(n)
	return at(revision), listing(state), err
}

func (s *script) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[sourceEvent, error] {
	s.mu.Lock()
	s.watches++
	n := s.watches
	s.mu.Unlock()
	return func(yield func(sourceEvent, error) bool) { s.watch(ctx, n, after, yield) }
}

func put(revision uint64, key string, object int) sourceEvent {
	return watchcache.CommitEvent(commit{Revision: revision, Changes: []change{{Key: key, Object: object}}})
}

// runs starts Run in a bubble, and returns what stops it and gives its error.
func runs(t *testing.T, c *cache, s watchcache.Source[int]) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx, s) }()
	return func() error {
		cancel()
		return <-result
	}
}

func TestFieldH1H2H3ARelistIsADifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		s := &script{
			list: func(n int) (uint64, string, error) {
				if n == 1 {
					return 10, "a=1 b=1 c=1", nil
				}
				time.Sleep(40 * time.Second) // slower than any history
				return 50, "a=1 b=2 d=1", nil
			},
			watch: func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool) {
				if n == 1 {
					yield(sourceEvent{}, watchcache.ErrExpired)
					return
				}
				<-ctx.Done()
			},
		}
		stop := runs(t, c, s)
		if err := c.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := mustWatch(t, c, watch{Name: "h", Start: watchcache.FromNow()})
		time.Sleep(20 * time.Second) // the relist is under way: the last good state is served
		if i, ok := c.Get("c"); !ok || i.Object != 1 {
			t.Error("the last good state is not served during a relist")
		}
		time.Sleep(time.Minute)
		wantPending(t, w, "~b=2@50… +d=1@50… -c=1@50")
		w.Stop()
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestFieldH5TransientErrorsPassAndTerminalOnesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		broken := errors.New("broken")
		s := &script{list: func(int) (uint64, string, error) { return 1, "a=1", nil }}
		s.watch = func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool) {
			switch {
			case n <= 3:
				yield(sourceEvent{}, broken)
			case n == 4:
				if yield(put(after.Revision+1, "a", 2), nil) {
					yield(sourceEvent{}, watchcache.Terminal(broken))
				}
			}
		}
		err := c.Run(t.Context(), s)
		if lists, watches := s.calls(); err != broken || lists != 1 || watches != 4 {
			t.Errorf("Run: %v after %d lists and %d watches, want the terminal error after 1 and 4", err, lists, watches)
		}
		if i, _ := c.Get("a"); i.Object != 2 {
			t.Errorf("a is %d, want what came before the end", i.Object)
		}
	})
}

func TestFieldH8G7TheWaitCarriesTheSourcesError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		corrupt := errors.New("corrupt object X")
		stop := runs(t, c, &script{list: func(int) (uint64, string, error) { return 0, "", corrupt }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := c.Watch(ctx, watch{})
		for _, want := range []error{watchcache.ErrNotReady, context.DeadlineExceeded, corrupt} {
			if !errors.Is(err, want) {
				t.Errorf("Watch of a cache that never gets ready: %v, want it to be %v too", err, want)
			}
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("it took %v, want its context's second", d)
		}
		if err := c.WaitReady(ctx); !errors.Is(err, corrupt) {
			t.Errorf("WaitReady: %v, want the source's error in it", err)
		}
		stop()
	})
}

// TestFieldG18G19H5Backoff: the wait grows on every failing path, whatever the
// listing does, and no goroutine is left by a failure.
func TestFieldG18G19BackoffGrowsUntilRealProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		progress := make(chan struct{}, 1)
		s := &script{list: func(n int) (uint64, string, error) { return uint64(n), "a=1", nil }}
		s.watch = func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool) {
			select {
			case <-progress:
				yield(put(after.Revision+1, "a", n), nil)
			default:
			}
			yield(sourceEvent{}, watchcache.ErrExpired) // and every listing succeeds
		}
		stop := runs(t, c, s)
		time.Sleep(10 * time.Minute)
		before, _ := s.calls()
		// Full jitter over 30 s is 15 s a try: 40 tries, and a few while it grew.
		if before > 120 {
			t.Errorf("%d lists in ten minutes of failures", before)
		}
		goroutines := runtime.NumGoroutine()
		progress <- struct{}{}
		time.Sleep(time.Minute)
		if s, _ := c.Status(); s.LastError == nil {
			t.Error("no error in the status of a failing source")
		}
		if now := runtime.NumGoroutine(); now > goroutines+3 { // one that has ended is counted for a moment; a leak is one a failure
			t.Errorf("%d goroutines, %d before", now, goroutines)
		}
		stop()
	})
}

func TestFieldC11ARunSaysThatASourceWentBackAndMendsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		s := &script{list: func(n int) (uint64, string, error) {
			if n == 1 {
				return 1, "", nil
			}
			return 20, "a=20", nil
		}}
		s.watch = func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool) {
			if n == 1 {
				_ = yield(put(7, "a", 7), nil) && yield(put(9, "a", 9), nil) && yield(put(8, "a", 8), nil)
				return
			}
			<-ctx.Done()
		}
		stop := runs(t, c, s)
		if err := c.WaitRevision(t.Context(), 9); err == nil {
			synctest.Wait()
		}
		if s, _ := c.Status(); !errors.Is(s.LastError, watchcache.ErrRevisionOrder) {
			t.Errorf("the status has %v, want ErrRevisionOrder", s.LastError)
		}
		if err := c.WaitRevision(t.Context(), 20); err != nil {
			t.Error(err)
		}
		if i, _ := c.Get("a"); i.Object != 20 {
			t.Errorf("a is %d after the relist, want 20", i.Object)
		}
		stop()
	})
}

type requester struct {
	script
	asked chan struct{}
}

func (r *requester) RequestProgress(context.Context) error {
	r.asked <- struct{}{}
	return nil
}

func TestProgressIsRequestedWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		r := &requester{asked: make(chan struct{}, 100)}
		r.list = func(int) (uint64, string, error) { return 1, "", nil }
		r.watch = func(ctx context.Context, n int, after watchcache.Position, yield func(sourceEvent, error) bool) {
			select {
			case <-r.asked:
				yield(watchcache.ProgressEvent[int](500), nil)
			case <-ctx.Done():
			}
			<-ctx.Done()
		}
		stop := runs(t, c, r)
		time.Sleep(time.Minute)
		if len(r.asked) != 0 {
			t.Error("asked although nobody waits")
		}
		if err := c.WaitRevision(t.Context(), 500); err != nil {
			t.Error(err)
		}
		stop()
	})
}

type streamer struct{ script }

func (s *streamer) Stream(ctx context.Context, _ uint64) iter.Seq2[sourceEvent, error] {
	return func(yield func(sourceEvent, error) bool) {
		_ = yield(watchcache.ItemEvent(item{Key: "a", Object: 1, Revision: 3}), nil) &&
			yield(watchcache.SyncedEvent[int](at(5)), nil) &&
			yield(put(6, "b", 2), nil)
		<-ctx.Done()
	}
}

func TestRunFollowsAStreamer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		s := &streamer{}
		stop := runs(t, c, s)
		if err := c.WaitRevision(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		if i, _ := c.Get("a"); i.Revision != 3 || c.Position() != at(6) {
			t.Errorf("a is of revision %d at %v, want 3 at 6", i.Revision, c.Position())
		}
		if lists, _ := s.calls(); lists != 0 {
			t.Errorf("%d lists of a source that streams", lists)
		}
		if st, _ := c.Status(); !st.Connected || !st.Ready {
			t.Errorf("status %+v, want ready and connected", st)
		}
		stop()
		if st, _ := c.Status(); st.Connected {
			t.Error("connected after Run has ended")
		}
	})
}

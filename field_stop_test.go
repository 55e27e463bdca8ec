package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/watchcache/watchcache"
)

// Section G: stop, cancel, shutdown, leaks.

func TestFieldG1G5AFullChannelEndsWithItsWatcher(t *testing.T) {
	for name, end := range map[string]func(*cache, *watcher, context.CancelFunc){
		"stop":   func(_ *cache, w *watcher, _ context.CancelFunc) { w.Stop() },
		"close":  func(c *cache, _ *watcher, _ context.CancelFunc) { c.Close() },
		"cancel": func(_ *cache, _ *watcher, cancel context.CancelFunc) { cancel() },
	} {
		synctest.Test(t, func(t *testing.T) { // fails if a goroutine stays
			c := newCache(t, options{})
			for i := range 100 {
				apply(t, c, 0, fmt.Sprintf("k%d=1", i))
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w, err := c.Watch(ctx, watch{})
			if err != nil {
				t.Fatal(err)
			}
			channel := watchcache.Pipe(w, 10, func(ev event) (string, bool) { return ev.Key, true })
			<-channel
			synctest.Wait()
			end(c, w, cancel)
			synctest.Wait()
			n := 0
			for range channel {
				n++
			}
			if n > 11 || w.Err() == nil {
				t.Errorf("%s: %d more events and %v, want what was buffered and a reason", name, n, w.Err())
			}
		})
	}
}

// TestFieldG2 is the fault that this library starts from: the client is gone, its
// handler sits in the loop body, and the snapshot must not.
func TestFieldG2AnEvictedWatcherHoldsNoSnapshotThoughItsConsumerIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type object [1000]byte
		c, err := watchcache.New(watchcache.Options[*object]{Capacity: 1})
		if err != nil {
			t.Fatal(err)
		}
		var old []weak.Pointer[object]
		for i := range 2000 {
			o := new(object)
			old = append(old, weak.Make(o))
			c.Put(fmt.Sprintf("%04d", i), o)
		}
		alive := func() (n int) {
			runtime.GC()
			for _, p := range old {
				if p.Value() != nil {
					n++
				}
			}
			return n
		}
		w, err := c.Watch(context.Background(), watchcache.WatchOptions[*object]{})
		if err != nil {
			t.Fatal(err)
		}
		stuck := make(chan struct{})
		go func() {
			n := 0
			for range w.Events() {
				if n++; n == 3 {
					<-stuck
				}
			}
		}()
		synctest.Wait()
		for i := range 2000 {
			c.Put(fmt.Sprintf("%04d", i), new(object))
		}
		if n := alive(); n < 1990 {
			t.Errorf("%d old objects are alive while the snapshot is being read, want them all", n)
		}
		time.Sleep(watchcache.DefaultInitialIdle)
		synctest.Wait()
		if !errors.Is(w.Err(), watchcache.ErrStalled) {
			t.Fatalf("ended with %v, want ErrStalled", w.Err())
		}
		if n := alive(); n > 1 { // the one in its consumer's hands
			t.Errorf("%d old objects are alive after the eviction, with the consumer still in its loop body", n)
		}
		close(stuck)
		c.Close()
	})
}

func TestFieldG3TheStrongerEndWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stopFirst := range []bool{false, true} {
			c := newCache(t, options{})
			w, err := c.Watch(context.Background(), watch{Start: watchcache.FromNow()})
			if err != nil {
				t.Fatal(err)
			}
			apply(t, c, 0, "a=1")
			if stopFirst {
				w.Stop()
			}
			down := make(chan error, 1)
			go func() { down <- c.Shutdown(context.Background()) }()
			synctest.Wait()
			w.Stop() // its reader has left
			if err := <-down; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		}
	})
}

func TestFieldG4DeadlinesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a timer, and with it the watchdog, stays
		c := newCache(t, options{})
		var all []*watcher
		for i := range 100 {
			w, err := c.Watch(t.Context(), watch{Start: watchcache.FromNow(), Deadline: time.Now().Add(time.Duration(i+1) * time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		time.Sleep(50*time.Minute + 1)
		synctest.Wait()
		for i, w := range all {
			if due := i < 50; due != errors.Is(w.Err(), watchcache.ErrDeadline) {
				t.Errorf("watcher %d after 50 minutes: %v", i, w.Err())
			}
			w.Stop()
		}
		if got := c.Stats().Watchers; got != 0 {
			t.Errorf("%d watchers are left", got)
		}
	})
}

func TestFieldG6CloseEndsAllAndThoseBeingRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mirror(t, options{}, 1, "")
		var all []*watcher
		for range 10 {
			w, err := c.Watch(t.Context(), watch{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		registering := make(chan error, 1)
		go func() {
			_, err := c.Watch(t.Context(), watch{AtLeast: 99})
			registering <- err
		}()
		synctest.Wait()
		c.Close()
		for _, w := range all {
			<-w.Done()
			if !errors.Is(w.Err(), watchcache.ErrClosed) {
				t.Errorf("ended with %v, want ErrClosed", w.Err())
			}
		}
		if err := <-registering; !errors.Is(err, watchcache.ErrClosed) {
			t.Errorf("the one being registered: %v, want ErrClosed", err)
		}
	})
}

func TestFieldG8G17StopAndCloseNeverBlock(t *testing.T) {
	c := newCache(t, options{})
	apply(t, c, 0, "a=1")
	w := mustWatch(t, c, watch{})
	for ev, err := range w.Events() { // inside its own loop
		if err != nil {
			if !errors.Is(err, watchcache.ErrStopped) {
				t.Errorf("ended with %v", err)
			}
			break
		}
		_ = ev
		w.Stop()
		w.Stop()
	}
	waiting := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	got := make(chan error, 1)
	go func() {
		_, err := waiting.Next(context.Background())
		got <- err
	}()
	waiting.Stop()
	if err := <-got; !errors.Is(err, watchcache.ErrStopped) {
		t.Errorf("Next: %v, want ErrStopped", err)
	}
	c.Close()
	c.Close()
	w.Stop() // G11: after the cache is gone
}

func TestFieldG9G13G15NothingIsLeftRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Indexes: map[string]func(string, int) []string{"i": func(string, int) []string { return []string{"x"} }}})
		apply(t, c, 0, "a=1")
		for i := range 1000 {
			ctx, cancel := context.WithCancel(context.Background())
			o := []watch{{}, {Key: "a"}, {Prefix: "a"}, {From: "a", To: "b"}, {Index: watchcache.IndexValue{Name: "i", Value: "x"}}}[i%5]
			w, err := c.Watch(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			for range i % 4 {
				w.TryNext()
			}
			if i%2 == 0 {
				cancel()
			} else {
				w.Stop()
			}
			cancel()
		}
		synctest.Wait()
		if s := c.Stats(); s.Watchers != 0 || s.Endings.Stopped+s.Endings.Context != 1000 {
			t.Errorf("%d watchers left, endings %+v", s.Watchers, s.Endings)
		}
		c.Close()
	})
}

func TestFieldG22NothingGoesOnAfterStop(t *testing.T) {
	c := newCache(t, options{})
	for i := range 1000 {
		apply(t, c, 0, fmt.Sprintf("k%d=1", i))
	}
	w := mustWatch(t, c, watch{})
	n := 0
	for _, err := range w.Events() {
		if err != nil {
			break
		}
		if n++; n == 10 {
			w.Stop()
		}
	}
	if n != 10 || c.Stats().Deliveries != 10 {
		t.Errorf("%d events after Stop at 10, %d by the figures", n, c.Stats().Deliveries)
	}
}

func TestFieldG23ACompletedStreamDoesNotSpin(t *testing.T) {
	c := newCache(t, options{})
	w := mustWatch(t, c, watch{})
	w.Stop()
	n := 0
	for _, err := range w.Events() {
		n++
		if !errors.Is(err, watchcache.ErrStopped) {
			t.Errorf("%v, want ErrStopped", err)
		}
	}
	if n != 1 {
		t.Errorf("%d pairs after the end, want one", n)
	}
	for _, err := range w.Events() {
		if !errors.Is(err, watchcache.ErrInUse) {
			t.Errorf("a second ranging: %v, want ErrInUse", err)
		}
	}
}

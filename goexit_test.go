package watchcache

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// A callback that calls runtime.Goexit, as t.FailNow does, takes its goroutine and
// nothing else: no lock, no timer, no channel stays behind.
func TestCallbackThatEndsItsGoroutine(t *testing.T) {
	lost := func(t *testing.T, f func()) { // runs f where it may end its goroutine
		t.Helper()
		done := make(chan struct{})
		go func() { defer close(done); f() }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a write waits for one whose goroutine has ended")
		}
	}
	armed := false
	exit := func() {
		if armed {
			runtime.Goexit()
		}
	}
	writes := func(t *testing.T, c *Cache[int]) {
		t.Helper()
		armed = false
		at := c.Position()
		at.Revision++
		lost(t, func() {
			if _, err := c.Apply(Commit[int]{Revision: at.Revision, Changes: puts(1, 0)}); err != nil || c.Position() != at {
				t.Errorf("the next commit: %v, at %v; want %v", err, c.Position(), at)
			}
			c.Close()
		})
	}
	none := func(yield func(Item[int], error) bool) { yield(Item[int]{Key: "k0", Object: 7}, nil) }
	for name, opts := range map[string]Options[int]{
		"Publish":      {Publish: func(_ uint64, c Change[int], _ int) int { exit(); return c.Object }},
		"Equal":        {Equal: func(int, int) bool { exit(); return false }},
		"SameIdentity": {SameIdentity: func(int, int) bool { exit(); return false }},
		"Size":         {Size: func(string, int) int { exit(); return 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			opts.Mirror, opts.Epoch = true, "e"
			c, _ := New(opts)
			c.Replace(Position{Revision: 1}, none)
			c.Apply(Commit[int]{Revision: 2, Changes: puts(1, 0)})
			armed = true
			lost(t, func() { c.Apply(Commit[int]{Revision: 3, Changes: puts(1, 0)}) })
			lost(t, func() { c.Replace(Position{Revision: c.Position().Revision + 1}, none) })
			writes(t, c)
		})
	}
	ended := func(t *testing.T, w *Watcher[int]) {
		t.Helper()
		var panicked *PanicError
		if err := w.Err(); !errors.As(err, &panicked) || panicked.Value != "runtime.Goexit" {
			t.Errorf("Err is %v, want a PanicError by runtime.Goexit", err)
		}
	}
	t.Run("Judge, of a writer", func(t *testing.T) {
		c, _ := New(Options[int]{Stall: StallFunc(StallLimits{Lag: 3}, func(Stall) Verdict { exit(); return VerdictEvict })})
		var watchers []*Watcher[int]
		for range 3 {
			w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow()})
			watchers = append(watchers, w)
		}
		armed = true
		lost(t, func() { c.Apply(Commit[int]{Changes: puts(3, 0)}) })
		for _, w := range watchers {
			ended(t, w)
		}
		writes(t, c)
	})
	t.Run("Judge, of time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := New(Options[int]{Stall: StallFunc(StallLimits{InitialIdle: time.Second}, func(Stall) Verdict { exit(); return VerdictEvict })})
			armed = true
			first, _ := c.Watch(context.Background(), WatchOptions[int]{})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			ended(t, first)
			armed = false
			second, _ := c.Watch(context.Background(), WatchOptions[int]{})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if err := second.Err(); !errors.Is(err, ErrStalled) {
				t.Errorf("the next watcher: %v, want ErrStalled", err)
			}
			writes(t, c)
		})
	})
	t.Run("Pipe and PipeBatches", func(t *testing.T) {
		armed = true
		c, _ := New(Options[int]{})
		c.Put("a", 1)
		w, _ := c.Watch(context.Background(), WatchOptions[int]{})
		for range Pipe(w, 0, func(ev Event[int]) (Event[int], bool) { exit(); return ev, true }) {
		}
		ended(t, w)
		w, _ = c.Watch(context.Background(), WatchOptions[int]{})
		for range PipeBatches(w, 0, func(b Batch[int]) (int, bool) { exit(); return 0, true }) {
		}
		ended(t, w)
		w, _ = c.Watch(context.Background(), WatchOptions[int]{Filter: func(string, int) bool { exit(); return true }})
		for range w.Channel(1) {
		}
		ended(t, w)
		writes(t, c)
	})
	t.Run("Filter and the loop's body", func(t *testing.T) {
		c, _ := New(Options[int]{})
		c.Put("a", 1)
		for _, filter := range []func(string, int) bool{nil, func(string, int) bool { exit(); return true }} {
			armed = true
			w, _ := c.Watch(context.Background(), WatchOptions[int]{Filter: filter})
			lost(t, func() {
				for range w.Events() {
					exit()
				}
			})
			if err := w.Err(); !errors.Is(err, ErrStopped) {
				t.Errorf("Err is %v, want ErrStopped: the consumer is gone", err)
			}
		}
		writes(t, c)
	})
	t.Run("RequestProgress", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := New(Options[int]{Mirror: true})
			s := &exitingSource{}
			ctx, cancel := context.WithCancel(t.Context())
			go c.Run(ctx, s)
			if err := c.WaitRevision(ctx, 2); err != nil || s.asked < 2 {
				t.Errorf("%v after %d requests for progress, want it to be asked again", err, s.asked)
			}
			cancel()
			synctest.Wait()
			c.Close()
		})
	})
}

// exitingSource tells progress when it is asked for it a second time.
type exitingSource struct {
	asked int
	told  chan struct{}
}

func (s *exitingSource) List(context.Context, uint64) (Position, iter.Seq2[Item[int], error], error) {
	s.told = make(chan struct{})
	return Position{Revision: 1}, func(func(Item[int], error) bool) {}, nil
}

func (s *exitingSource) Watch(ctx context.Context, _ Position) iter.Seq2[SourceEvent[int], error] {
	return func(yield func(SourceEvent[int], error) bool) {
		select {
		case <-s.told:
			if !yield(SourceEvent[int]{Kind: SourceProgress, At: Position{Revision: 2}}, nil) {
				return
			}
		case <-ctx.Done():
		}
		<-ctx.Done()
		yield(SourceEvent[int]{}, context.Cause(ctx))
	}
}

func (s *exitingSource) RequestProgress(context.Context) error {
	if s.asked++; s.asked < 2 {
		runtime.Goexit()
	}
	if s.asked == 2 {
		close(s.told)
	}
	return nil
}

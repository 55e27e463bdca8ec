package watchcache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
)

func TestErrorsOfWatch(t *testing.T) {
	bad := errors.New("bad")
	c := mirror(t, options{}, 10, "a=1")
	apply(t, c, 12, "a=2")
	if err := c.Replace(at(20), listing("a=3")); err != nil { // nothing is known between 12 and 20
		t.Fatal(err)
	}
	if err := c.Trim(at(12)); err != nil {
		t.Fatal(err)
	}
	foreign, part := watchcache.Position{Epoch: "f", Revision: 20}, watchcache.Position{Epoch: "e", Revision: 20, Part: 1}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(bad)
	for _, row := range []struct {
		what string
		ctx  context.Context
		opts watch
		want error
	}{
		{"before what was trimmed", nil, watch{Start: watchcache.After(at(11))}, &watchcache.ExpiredError{Requested: at(11), Oldest: at(12)}},
		{"in a hole", nil, watch{Start: watchcache.After(at(13))}, &watchcache.ExpiredError{Requested: at(13), Oldest: at(12), HoleEnd: at(20)}},
		{"in a hole, by revision", nil, watch{Start: watchcache.AfterRevision(19)}, &watchcache.ExpiredError{Requested: at(19), Oldest: at(12), HoleEnd: at(20)}},
		{"in a hole, with AllowFuture", nil, watch{Start: watchcache.After(at(13)).AllowFuture()}, &watchcache.ExpiredError{Requested: at(13), Oldest: at(12), HoleEnd: at(20)}},
		{"of another epoch", nil, watch{Start: watchcache.After(foreign)}, &watchcache.ExpiredError{Requested: foreign, Oldest: at(12)}},
		{"of another epoch, with AllowFuture", nil, watch{Start: watchcache.After(foreign).AllowFuture()}, &watchcache.ExpiredError{Requested: foreign, Oldest: at(12)}},
		{"of no epoch", nil, watch{Start: watchcache.After(watchcache.Position{})}, &watchcache.ExpiredError{Oldest: at(12)}},
		{"beyond the head", nil, watch{Start: watchcache.After(at(21))}, &watchcache.FutureError{Requested: at(21), Head: at(20)}},
		{"beyond the head, by revision", nil, watch{Start: watchcache.AfterRevision(21), Key: "a"}, &watchcache.FutureError{Requested: at(21), Head: at(20)}},
		{"beyond the head by a part", nil, watch{Start: watchcache.After(part)}, &watchcache.FutureError{Requested: part, Head: at(20)}},
		{"with a policy whose Limits panics", nil, watch{Stall: limitless{bad}}, &watchcache.PanicError{Callback: "StallPolicy.Limits", Value: bad}},
		{"with a context that has ended", gone, watch{Start: watchcache.FromNow()}, bad},
		{"with a context that has ended, for later", gone, watch{AtLeast: 99}, bad},
	} {
		ctx := row.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		refused(t, c, row.what, row.want, func() error {
			w, err := c.Watch(ctx, row.opts)
			if w != nil {
				t.Errorf("%s: a watcher beside %v", row.what, err)
			}
			return err
		})
	}
}

// limitless is a policy that panics when it is asked for its limits.
type limitless struct{ value any }

func (p limitless) Limits() watchcache.StallLimits          { panic(p.value) }
func (limitless) Judge(watchcache.Stall) watchcache.Verdict { return watchcache.VerdictWait }

func TestErrorsOfWatchInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		begin := time.Now()
		_, err := c.Watch(t.Context(), watch{AtLeastWait: time.Minute})
		wantError(t, "a cache that does not get ready", err, watchcache.ErrTimeout)
		if d := time.Since(begin); d != time.Minute || figures(c).Watchers != 0 {
			t.Errorf("it took %v, and there are %d watchers", d, figures(c).Watchers)
		}
		c = newCache(t, options{MaxWatchers: 1})
		first := mustWatch(t, c, watch{})
		result := make(chan error, 1)
		go func() {
			_, err := c.Watch(t.Context(), watch{AtLeast: 1})
			result <- err
		}()
		synctest.Wait()
		apply(t, c, 0, "a=1") // it is fresh enough now, and there is no room
		wantError(t, "more than MaxWatchers, after a wait", <-result, watchcache.ErrTooManyWatchers)
		wantPending(t, first, "synced@0 +a=1@1")
	})
}

func TestErrorsOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, down := errors.New("late"), errors.New("the source is down")
		waits := map[string]func(context.Context, *cache) error{
			"WaitReady":    func(ctx context.Context, c *cache) error { return c.WaitReady(ctx) },
			"WaitRevision": func(ctx context.Context, c *cache) error { return c.WaitRevision(ctx, 99) },
			"Watch":        func(ctx context.Context, c *cache) error { _, err := c.Watch(ctx, watch{AtLeast: 99}); return err },
		}
		for what, wait := range waits {
			// ends starts to wait, and returns the error with which that ends.
			ends := func(c *cache, after func(cancel context.CancelCauseFunc)) error {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				result := make(chan error, 1)
				go func() { result <- wait(ctx, c) }()
				synctest.Wait()
				after(cancel)
				return <-result
			}
			cancelled := func(cancel context.CancelCauseFunc) { cancel(late) }

			c := newCache(t, options{Mirror: true})
			err := ends(c, cancelled)
			wantError(t, what+" before there is a state", err, late)
			wantError(t, what+" before there is a state", err, watchcache.ErrNotReady)
			stop := runs(t, c, &script{list: func(int) (uint64, string, error) { return 0, "", down }})
			synctest.Wait()
			err = ends(c, cancelled)
			for _, want := range []error{late, watchcache.ErrNotReady, down} {
				wantError(t, what+" for a source that fails", err, want)
			}
			stop()
			wantError(t, what+" until Close, not ready", ends(c, func(context.CancelCauseFunc) { c.Close() }), watchcache.ErrClosed)

			c = newCache(t, options{})
			if what != "WaitReady" {
				err := ends(c, cancelled)
				wantError(t, what+" too long", err, late)
				if text := err.Error(); errors.Is(err, watchcache.ErrNotReady) || !strings.Contains(text, "99") || !strings.Contains(text, c.Position().String()) {
					t.Errorf("%s: %v, want the cause, what was waited for, and how far the cache is", what, err)
				}
				wantError(t, what+" until Shutdown", ends(c, func(context.CancelCauseFunc) { c.Shutdown(t.Context()) }), watchcache.ErrClosed)
			}
			c.Close()
			wantError(t, what+" after Close", wait(t.Context(), c), watchcache.ErrClosed)
		}
	})
}

func TestErrorsOfShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		impatient := errors.New("impatient")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := func(pending string) (*cache, *watcher, chan error) {
			c := newCache(t, options{})
			w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
			apply(t, c, 0, pending)
			result := make(chan error, 1)
			go func() { result <- c.Shutdown(ctx) }()
			synctest.Wait()
			return c, w, result
		}
		c, w, result := start("a=1")
		if w.Err() != nil {
			t.Errorf("a watcher that drains has ended with %v", w.Err())
		}
		c.Close() // the stronger of the two
		if err := <-result; err != nil {
			t.Errorf("Shutdown that meets Close: %v", err)
		}
		_, w, result = start("a=1")
		cancel(impatient)
		wantError(t, "Shutdown", <-result, impatient)
		wantPending(t, w, "!closed")
		_, w, result = start("") // nothing to drain: the context does not matter
		if err := <-result; err != nil {
			t.Errorf("Shutdown with nothing to drain: %v", err)
		}
		wantPending(t, w, "!closed")
	})
}

// consumers take all that a watcher has, each in its way, and return the error
// that ended it.
var consumers = map[string]func(*testing.T, *watcher) error{
	"Events": func(t *testing.T, w *watcher) (end error) {
		for ev, err := range w.Events() {
			if end != nil || err != nil && ev != (event{}) {
				t.Errorf("%v and %v after %v", show(ev), err, end)
			}
			end = err
		}
		return end
	},
	"Batches": func(t *testing.T, w *watcher) (end error) {
		for b, err := range w.Batches() {
			if end != nil || (err != nil) != (len(b.Events) == 0) {
				t.Errorf("%v and %v after %v", b, err, end)
			}
			end = err
		}
		return end
	},
	"Next": func(t *testing.T, w *watcher) error {
		for {
			if ev, err := w.Next(context.Background()); err != nil {
				if ev != (event{}) {
					t.Errorf("%s beside %v", show(ev), err)
				}
				return err
			}
		}
	},
	"TryNext": func(t *testing.T, w *watcher) error {
		for {
			switch ev, ok, err := w.TryNext(); {
			case err != nil:
				if ok || ev != (event{}) {
					t.Errorf("%s, %v beside %v", show(ev), ok, err)
				}
				return err
			case !ok:
				<-w.Wait()
			}
		}
	},
	"Channel": func(t *testing.T, w *watcher) error {
		for range w.Channel(0) {
		}
		return w.Err()
	},
	"Pipe": func(t *testing.T, w *watcher) error {
		for range watchcache.Pipe(w, 1, func(ev event) (string, bool) { return ev.Key, true }) {
		}
		return w.Err()
	},
	"PipeBatches": func(t *testing.T, w *watcher) error {
		for range watchcache.PipeBatches(w, 1, func(b watchcache.Batch[int]) (int, bool) { return len(b.Events), true }) {
		}
		return w.Err()
	},
}

func TestErrorsThatEndWatchers(t *testing.T) {
	bad, gone := errors.New("bad"), errors.New("gone")
	filter := func(_ string, n int) bool {
		if n == 666 {
			panic(bad)
		}
		return true
	}
	clone := func(n int) int { filter("", n); return n }
	fromNow := watchcache.FromNow()
	evict := func(l watchcache.StallLimits) watchcache.StallPolicy { return watchcache.Evict{StallLimits: l} }
	panicky := watchcache.StallFunc(watchcache.StallLimits{Lag: 1}, func(watchcache.Stall) watchcache.Verdict { panic(bad) })
	type cancel = context.CancelCauseFunc
	puts := func(text string) func(*testing.T, *cache, *watcher, cancel) {
		return func(t *testing.T, c *cache, _ *watcher, _ cancel) { apply(t, c, 0, text) }
	}
	replaces := func(p watchcache.Position) func(*testing.T, *cache, *watcher, cancel) {
		return func(t *testing.T, c *cache, _ *watcher, _ cancel) {
			if err := c.Replace(p, listing("b=1")); err != nil {
				t.Error(err)
			}
		}
	}
	foreign, continued := watchcache.Position{Epoch: "f", Revision: 1}, watchcache.Position{Epoch: "e", Revision: 1, Part: 1}
	for _, row := range []struct {
		what     string
		opts     options
		watch    watch
		late     bool // it ends before its consumer comes
		all      bool // the others end too
		deadline time.Duration
		end      func(*testing.T, *cache, *watcher, cancel)
		want     error
		endings  watchcache.Endings
	}{
		{what: "stopped", end: func(_ *testing.T, _ *cache, w *watcher, _ cancel) { w.Stop() }, want: watchcache.ErrStopped, endings: watchcache.Endings{Stopped: 1}},
		{what: "closed", end: func(_ *testing.T, c *cache, _ *watcher, _ cancel) { c.Close() }, all: true, want: watchcache.ErrClosed, endings: watchcache.Endings{Closed: 1}},
		{what: "shut down", watch: watch{Start: fromNow}, end: func(t *testing.T, c *cache, _ *watcher, _ cancel) { c.Shutdown(t.Context()) }, all: true,
			want: watchcache.ErrClosed, endings: watchcache.Endings{Closed: 1}},
		{what: "cancelled", end: func(_ *testing.T, _ *cache, _ *watcher, end cancel) { end(nil) }, want: context.Canceled, endings: watchcache.Endings{Context: 1}},
		{what: "out of its context's time", end: func(_ *testing.T, _ *cache, _ *watcher, end cancel) { end(context.DeadlineExceeded) },
			want: context.DeadlineExceeded, endings: watchcache.Endings{Context: 1}},
		{what: "cancelled with a cause", end: func(_ *testing.T, _ *cache, _ *watcher, end cancel) { end(gone) }, want: gone, endings: watchcache.Endings{Other: 1}},
		{what: "numbered anew", end: replaces(foreign), all: true, want: &watchcache.ExpiredError{Requested: at(1), Oldest: foreign}, endings: watchcache.Endings{Expired: 1}},
		{what: "listed anew", opts: options{Relist: watchcache.RelistExpire}, end: replaces(at(9)), all: true,
			want: &watchcache.ExpiredError{Requested: at(1), Oldest: at(9)}, endings: watchcache.Endings{Expired: 1}},
		{what: "listed with a difference at a part of the head's revision", end: replaces(continued), all: true,
			want: &watchcache.ExpiredError{Requested: at(1), Oldest: continued}, endings: watchcache.Endings{Expired: 1}},
		{what: "stalled", end: func(*testing.T, *cache, *watcher, cancel) { time.Sleep(watchcache.DefaultInitialIdle) }, late: true,
			want: &watchcache.StalledError{Phase: watchcache.PhaseInitial, Idle: watchcache.DefaultInitialIdle}, endings: watchcache.Endings{Stalled: 1}},
		{what: "lagged", watch: watch{Start: fromNow, Stall: evict(watchcache.StallLimits{Lag: 3})}, late: true,
			end: func(t *testing.T, c *cache, _ *watcher, _ cancel) {
				time.Sleep(time.Second)
				apply(t, c, 0, "a=2 a=3")
				apply(t, c, 0, "a=4")
			},
			want:    &watchcache.StalledError{Phase: watchcache.PhaseStreaming, Idle: time.Second, Lag: 3, Position: at(1)},
			endings: watchcache.Endings{Lagged: 1}},
		{what: "idle", watch: watch{Start: fromNow, Stall: evict(watchcache.StallLimits{StreamIdle: time.Second})}, late: true,
			end: func(t *testing.T, c *cache, _ *watcher, _ cancel) {
				time.Sleep(time.Minute)
				apply(t, c, 0, "a=2")
				time.Sleep(time.Second)
			},
			want:    &watchcache.StalledError{Phase: watchcache.PhaseStreaming, Idle: time.Second, Lag: 1, Position: at(1)},
			endings: watchcache.Endings{Lagged: 1}},
		{what: "overrun", opts: options{Capacity: 1}, watch: watch{Start: fromNow}, late: true,
			end: func(t *testing.T, c *cache, _ *watcher, _ cancel) {
				apply(t, c, 0, "a=2")
				apply(t, c, 0, "a=3")
			},
			want:    &watchcache.StalledError{Phase: watchcache.PhaseStreaming, Lag: 2, Overrun: true, Position: at(1)},
			endings: watchcache.Endings{Lagged: 1}},
		{what: "at its deadline", deadline: time.Minute, watch: watch{Start: fromNow}, end: func(*testing.T, *cache, *watcher, cancel) { time.Sleep(time.Minute) },
			want: watchcache.ErrDeadline, endings: watchcache.Endings{Deadline: 1}},
		{what: "its filter panics", watch: watch{Start: fromNow, Filter: filter}, end: puts("a=666"),
			want: &watchcache.PanicError{Callback: "WatchOptions.Filter", Value: bad}, endings: watchcache.Endings{Panicked: 1}},
		{what: "its filter panics, joining", watch: watch{Start: fromNow, Filter: filter, Coalesce: true}, end: puts("a=666"),
			want: &watchcache.PanicError{Callback: "WatchOptions.Filter", Value: bad}, endings: watchcache.Endings{Panicked: 1}},
		{what: "its filter panics at the state", watch: watch{Filter: func(string, int) bool { panic(bad) }}, end: puts("b=1"), late: true,
			want: &watchcache.PanicError{Callback: "WatchOptions.Filter", Value: bad}, endings: watchcache.Endings{Panicked: 1}},
		{what: "Clone panics", opts: options{Clone: clone}, watch: watch{Start: fromNow}, end: puts("a=666"),
			want: &watchcache.PanicError{Callback: "Options.Clone", Value: bad}, endings: watchcache.Endings{Panicked: 1}},
		{what: "Clone panics, joining", opts: options{Clone: clone}, watch: watch{Start: fromNow, Coalesce: true}, end: puts("a=666"),
			want: &watchcache.PanicError{Callback: "Options.Clone", Value: bad}, endings: watchcache.Endings{Panicked: 1}},
		{what: "its policy panics", watch: watch{Start: fromNow, Stall: panicky}, end: puts("a=2"), late: true,
			want: &watchcache.PanicError{Callback: "StallPolicy.Judge", Value: bad}, endings: watchcache.Endings{Panicked: 1}},
	} {
		for name, consume := range consumers {
			for _, late := range []bool{true, false} {
				if row.late && !late {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					what := row.what + ", by " + name
					row.opts.Epoch = "e"
					c := newCache(t, row.opts)
					apply(t, c, 0, "a=1")
					ctx, cancel := context.WithCancelCause(context.Background())
					defer cancel(nil)
					o := row.watch
					if row.deadline > 0 {
						o.Deadline = time.Now().Add(row.deadline)
					}
					w, err := c.Watch(ctx, o)
					if err != nil {
						t.Fatal(err)
					}
					var others []*watcher
					if !row.all {
						patient := evict(watchcache.StallLimits{InitialIdle: watchcache.NoLimit})
						others = append(others, mustWatch(t, c, watch{Key: "z", Stall: patient}), mustWatch(t, c, watch{Key: "z", Start: fromNow}))
					}
					result := make(chan error, 1)
					if !late {
						go func() { result <- consume(t, w) }()
						synctest.Wait()
					}
					if w.Err() != nil {
						t.Errorf("%s: ended with %v before its time", what, w.Err())
					}
					row.end(t, c, w, cancel)
					synctest.Wait()
					if late {
						result <- consume(t, w)
					}
					err = <-result
					wantError(t, what, err, row.want)
					if w.Err() != err {
						t.Errorf("%s: Err is %v, the stream ended with %v", what, w.Err(), err)
					}
					<-w.Done()
					w.Stop() // the first reason wins
					again, want := consume(t, w), err
					if name == "Events" || name == "Batches" { // of which there is one
						want = watchcache.ErrInUse
					}
					wantError(t, what+", once more", again, want)
					if got := c.Stats().Endings; got != row.endings {
						t.Errorf("%s: endings are %+v, want %+v", what, got, row.endings)
					}
					if !row.all {
						apply(t, c, 0, "z=1")
					}
					for i, other := range others {
						want := []string{"synced@1 +z=1@", "+z=1@"}[i]
						if got := pending(t, other); len(got) < len(want) || got[:len(want)] != want {
							t.Errorf("%s: another watcher took %q", what, got)
						}
						other.Stop()
					}
				})
			}
		}
	}
}

func TestErrorsOfWhoLeaves(t *testing.T) {
	bad := errors.New("bad")
	for what, leave := range map[string]func(*watcher){
		"break out of Events": func(w *watcher) {
			for range w.Events() {
				break
			}
		},
		"break out of Batches": func(w *watcher) {
			for range w.Batches() {
				break
			}
		},
		"panic in Events": func(w *watcher) {
			defer func() { recover() }()
			for range w.Events() {
				panic(bad)
			}
		},
		"panic in Batches": func(w *watcher) {
			defer func() { recover() }()
			for range w.Batches() {
				panic(bad)
			}
		},
	} {
		c := newCache(t, options{})
		w := mustWatch(t, c, watch{})
		leave(w)
		wantError(t, what, w.Err(), watchcache.ErrStopped)
		if s := c.Stats(); s.Watchers != 0 || s.Endings.Stopped != 1 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	for what, pipe := range map[string]func(*watcher) <-chan int{
		"Pipe": func(w *watcher) <-chan int { return watchcache.Pipe(w, 0, func(event) (int, bool) { panic(bad) }) },
		"PipeBatches": func(w *watcher) <-chan int {
			return watchcache.PipeBatches(w, 0, func(watchcache.Batch[int]) (int, bool) { panic(bad) })
		},
	} {
		c := newCache(t, options{})
		w := mustWatch(t, c, watch{})
		for range pipe(w) {
			t.Errorf("%s: sent what could not be converted", what)
		}
		wantError(t, what, w.Err(), watchcache.ErrCallbackPanic)
		if got, ok := errors.AsType[*watchcache.PanicError](w.Err()); !ok || got.Value != bad || !errors.Is(got, bad) || c.Stats().Endings.Panicked != 1 {
			t.Errorf("%s: ended with %v, endings %+v", what, w.Err(), c.Stats().Endings)
		}
	}
}

func TestErrorsOfASecondConsumer(t *testing.T) {
	// Each is refused, or is a channel that is closed, and leaves at once.
	seconds := make(map[string]func(*testing.T, *watcher) error)
	for name, consume := range consumers {
		seconds[name] = func(t *testing.T, w *watcher) error {
			err := consume(t, w)
			if err == nil { // a channel, which tells nothing
				err = watchcache.ErrInUse
			}
			return err
		}
	}
	for first, consume := range consumers {
		if first == "TryNext" { // it does not stay
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCache(t, options{})
			w := mustWatch(t, c, watch{})
			result := make(chan error, 1)
			go func() { result <- consume(t, w) }()
			synctest.Wait()
			before := figures(c)
			for second, f := range seconds {
				wantError(t, second+" beside "+first, f(t, w), watchcache.ErrInUse)
			}
			if now := figures(c); now != before || w.Err() != nil {
				t.Errorf("beside %s: the figures went from %+v to %+v, the watcher to %v", first, before, now, w.Err())
			}
			apply(t, c, 0, "a=1")
			synctest.Wait()
			if got := c.Stats(); got.Deliveries != 2 || got.MaxLag != 0 {
				t.Errorf("beside %s: the first takes nothing any more: %+v", first, got)
			}
			w.Stop()
			wantError(t, first, <-result, watchcache.ErrStopped)
			_, err := w.Next(t.Context())
			want := watchcache.ErrInUse
			if first == "Next" {
				want = watchcache.ErrStopped
			}
			wantError(t, "Next after "+first, err, want)
		})
	}
}

func TestErrorsOfNextsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("late")
		c := newCache(t, options{})
		w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		before := figures(c)
		for range 2 { // while it waits, and at once
			_, err := w.Next(ctx)
			wantError(t, "Next", err, late)
		}
		if w.Err() != nil || figures(c) != before {
			t.Errorf("after Next's context the watcher has ended with %v, figures %+v", w.Err(), figures(c))
		}
		apply(t, c, 0, "a=1")
		if ev, err := w.Next(t.Context()); err != nil || show(ev) != "+a=1@1" {
			t.Errorf("Next after Next's context has ended: %s, %v", show(ev), err)
		}
		w.Stop()
		_, err := w.Next(ctx)
		wantError(t, "Next after the end", err, watchcache.ErrStopped)
	})
}

// TestExpiredErrorOfAClientAheadOfARelist: RelistExpire ends it like all others,
// and the error does not say that it is older than the oldest.
func TestExpiredErrorOfAClientAheadOfARelist(t *testing.T) {
	c := mirror(t, options{Relist: watchcache.RelistExpire}, 1, "a=1")
	w := mustWatch(t, c, watch{Start: watchcache.After(at(5)).AllowFuture()})
	if err := c.Replace(at(3), listing("a=2")); err != nil {
		t.Fatal(err)
	}
	want := &watchcache.ExpiredError{Requested: at(5), Oldest: at(3)}
	wantError(t, "a client that is ahead, after a relist", w.Err(), want)
	if text := w.Err().Error(); !strings.Contains(text, "listed anew at e:3") {
		t.Error(text)
	}
}

package watchcachetest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

type subject = watchcachetest.Subject[string]

func plainSubject(t testing.TB, opts watchcache.Options[string]) subject {
	cache, err := watchcache.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	return subject{Cache: cache}
}

// followed makes a subject of a source in one of its forms.
func followed(form func(*watchcachetest.Source[string]) watchcache.Source[string]) func(testing.TB, watchcache.Options[string]) subject {
	return func(t testing.TB, opts watchcache.Options[string]) subject {
		source := watchcachetest.NewSource[string]("backend")
		source.Progress(1)
		opts.Mirror = true
		s := plainSubject(t, opts)
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { s.Cache.Run(ctx, form(source)) })
		t.Cleanup(run.Wait)
		t.Cleanup(cancel)
		s.Commit = func(changes ...watchcache.Change[string]) (uint64, error) {
			return source.Commit(watchcache.Commit[string]{Changes: changes}), nil
		}
		s.Cut = func() { source.Cut(nil) }
		s.Forget = func(meanwhile func()) {
			release := source.Hold()
			defer release()
			source.Cut(nil)
			meanwhile()
			source.Compact(source.Position().Revision)
		}
		return s
	}
}

func TestConformanceOfTheCache(t *testing.T) { watchcachetest.RunConformance(t, plainStart) }

// Whether it ends a watcher that stalls, starts it again or just has all the history, a
// cache conforms.
func TestConformanceWhateverHappensToTheStalled(t *testing.T) {
	for name, change := range map[string]func(*watchcache.Options[string]){
		"Resync":          func(o *watchcache.Options[string]) { o.Stall = watchcache.Resync{} },
		"NothingIsMissed": func(o *watchcache.Options[string]) { o.Capacity = 100_000 },
	} {
		t.Run(name, func(t *testing.T) {
			watchcachetest.RunConformance(t, func(t testing.TB, opts watchcache.Options[string]) subject {
				change(&opts)
				return plainSubject(t, opts)
			})
		})
	}
}

// record is an object as adapters have them: behind a pointer, and with more in it than
// what is kept.
type record struct{ key, text string }

// TestConformanceOfObjectsOfAnyType has objects that are not texts, and keys that all
// begin with the same; and a wrapper that has few of the options.
func TestConformanceOfObjectsOfAnyType(t *testing.T) {
	start := func(t testing.TB, opts watchcache.Options[*record]) watchcachetest.Subject[*record] {
		cache, err := watchcache.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cache.Close() })
		return watchcachetest.Subject[*record]{
			Cache:  cache,
			Prefix: "/registry/",
			Encode: func(key, text string) *record { return &record{key, text} },
			Decode: func(r *record) string { return r.text },
		}
	}
	t.Run("All", func(t *testing.T) { watchcachetest.RunConformance(t, start) })
	t.Run("Lacking", func(t *testing.T) {
		watchcachetest.RunConformance(t, func(t testing.TB, opts watchcache.Options[*record]) watchcachetest.Subject[*record] {
			opts.Indexes = nil
			s := start(t, opts)
			s.Lacks = []string{"FromNow", "Filter", "Index", "Coalesce", "Bookmarks", "AtLeast", "Deadline"}
			s.Watch = func(ctx context.Context, o watchcache.WatchOptions[*record]) (iter.Seq2[watchcache.Event[*record], error], error) {
				if o.Start == watchcache.FromNow() || o.Filter != nil || o.Index.Name != "" || o.Coalesce || o.Bookmarks != 0 || o.AtLeast != 0 || !o.Deadline.IsZero() {
					return nil, fmt.Errorf("an option that the subject lacks: %+v", o)
				}
				w, err := s.Cache.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return w.Events(), nil
			}
			return s
		})
	})
}

func TestErrorsOfSubjects(t *testing.T) {
	v := &verdict{TB: t}
	watchcachetest.Conform(v, "EmptyState", time.Second, func(t testing.TB, opts watchcache.Options[string]) subject {
		s := plainSubject(t, opts)
		s.Lacks = []string{"Wings"}
		return s
	})
	w := &verdict{TB: t}
	watchcachetest.Conform(w, "EmptyState", time.Second, func(t testing.TB, opts watchcache.Options[int]) watchcachetest.Subject[int] {
		cache, _ := watchcache.New(opts)
		t.Cleanup(func() { cache.Close() })
		return watchcachetest.Subject[int]{Cache: cache}
	})
	for want, v := range map[string]*verdict{`no "Wings"`: v, "only if T is string": w} {
		v.end()
		if len(v.wrong) != 1 || !strings.Contains(v.wrong[0], want) {
			t.Errorf("want to be told %q, got %q", want, v.wrong)
		}
	}
}

func plainStart(t testing.TB, opts watchcache.Options[string]) subject { return plainSubject(t, opts) }

func TestConformanceOfSources(t *testing.T) {
	for name, form := range map[string]func(*watchcachetest.Source[string]) watchcache.Source[string]{
		"Source": func(s *watchcachetest.Source[string]) watchcache.Source[string] { return s },
		"Streaming": func(s *watchcachetest.Source[string]) watchcache.Source[string] {
			return watchcachetest.StreamingSource[string]{Source: s}
		},
		"StreamingRequesting": func(s *watchcachetest.Source[string]) watchcache.Source[string] {
			return watchcachetest.StreamingRequestingSource[string]{Source: s}
		},
	} {
		t.Run(name, func(t *testing.T) { watchcachetest.RunConformance(t, followed(form)) })
	}
}

// verdict is a testing.TB that a test may fail.
type verdict struct {
	testing.TB
	mu      sync.Mutex
	wrong   []string
	cleanup []func()
}

func (v *verdict) end() {
	for _, f := range slices.Backward(v.cleanup) {
		f()
	}
}

func (v *verdict) Helper()          {}
func (v *verdict) Cleanup(f func()) { v.cleanup = append(v.cleanup, f) }
func (v *verdict) Error(args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wrong = append(v.wrong, fmt.Sprint(args...))
}
func (v *verdict) Errorf(format string, args ...any) { v.Error(fmt.Sprintf(format, args...)) }
func (v *verdict) Fatal(args ...any)                 { v.Error(args...); runtime.Goexit() }
func (v *verdict) Fatalf(format string, args ...any) { v.Errorf(format, args...); runtime.Goexit() }

type (
	textEvent  = watchcache.Event[string]
	textEvents = iter.Seq2[textEvent, error]
	textWatch  = watchcache.WatchOptions[string]
)

// wrapped makes subjects whose watchers get their events by way of a wrapper.
func wrapped(watch func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error)) func(testing.TB, watchcache.Options[string]) subject {
	return func(t testing.TB, opts watchcache.Options[string]) subject {
		s := plainSubject(t, opts)
		s.Watch = func(ctx context.Context, opts textWatch) (textEvents, error) { return watch(ctx, s.Cache, opts) }
		return s
	}
}

func events(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
	w, err := c.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return w.Events(), nil
}

// passing wraps streams: pass gets each pair with its number, and what passes it on.
func passing(pass func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool) func(testing.TB, watchcache.Options[string]) subject {
	return wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
		inner, err := events(ctx, c, opts)
		if err != nil {
			return nil, err
		}
		return func(yield func(textEvent, error) bool) {
			n := 0
			for ev, err := range inner {
				if n++; !pass(n, ev, err, yield) {
					return
				}
			}
		}, nil
	})
}

// TestConformanceFindsFaults: each wrapper and source has one fault, of which the
// test that is named must tell.
func TestConformanceFindsFaults(t *testing.T) {
	each := func(change func(n int, ev *textEvent)) func(testing.TB, watchcache.Options[string]) subject {
		return passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			change(n, &ev)
			return yield(ev, err)
		})
	}
	for name, tc := range map[string]struct {
		start func(testing.TB, watchcache.Options[string]) subject
		by    string
	}{
		"an event is lost": {passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			return n == 20 && err == nil || yield(ev, err)
		}), "StateThenChanges"},
		"an event comes twice": {passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			return (n != 20 || err != nil || yield(ev, err)) && yield(ev, err)
		}), "StateThenChanges"},
		"no Synced": {passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			return ev.Type == watchcache.Synced || yield(ev, err)
		}), "EmptyState"},
		"the end is silent": {passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			return err != nil || yield(ev, err)
		}), "Ending"},
		"commits are split":         {each(func(_ int, ev *textEvent) { ev.More = false }), "StateThenChanges"},
		"initial events are not so": {each(func(_ int, ev *textEvent) { ev.Initial = false }), "StateThenChanges"},
		"who leaves was removed":    {each(func(_ int, ev *textEvent) { ev.Cause = min(ev.Cause, watchcache.Removed) }), "Selections"},
		"a deletion has no object": {each(func(_ int, ev *textEvent) {
			ev.Object = map[bool]string{true: ev.Object}[ev.Type != watchcache.Deleted]
		}), "StateThenChanges"},
		"Synced is of a revision less": {each(func(_ int, ev *textEvent) {
			if ev.Type == watchcache.Synced && ev.Revision > 0 {
				ev.Revision--
			}
		}), "StateThenChanges"},
		"the filter is not passed on": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			opts.Filter = nil
			return events(ctx, c, opts)
		}), "Selections"},
		"resuming begins one too early": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			if at := c.Position(); opts.Start != watchcache.FromState() && at.Revision > 4 {
				opts.Start = watchcache.AfterRevision(4)
			}
			return events(ctx, c, opts)
		}), "Resuming"},
		"resuming gives the state": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			opts.Start = watchcache.FromState()
			return events(ctx, c, opts)
		}), "Resuming"},
		"the context is not passed on": {wrapped(func(_ context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			return events(context.Background(), c, opts)
		}), "Ending"},
		"a loop that is left leaves a watcher": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			w, err := c.Watch(ctx, opts)
			if err != nil {
				return nil, err
			}
			return func(yield func(textEvent, error) bool) {
				for {
					ev, err := w.Next(context.Background())
					if !yield(ev, err) || err != nil {
						return
					}
				}
			}, nil
		}), "Ending"},
		"the index is not passed on": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			opts.Index = watchcache.IndexValue{}
			return events(ctx, c, opts)
		}), "Selections"},
		"now is the state": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			if opts.Start == watchcache.FromNow() {
				opts.Start = watchcache.FromState()
			}
			return events(ctx, c, opts)
		}), "Now"},
		"joining forgets deletions": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			inner, err := events(ctx, c, opts)
			if err != nil || !opts.Coalesce {
				return inner, err
			}
			return func(yield func(textEvent, error) bool) {
				for ev, err := range inner {
					if ev.Type == watchcache.Deleted && ev.More {
						continue
					}
					if !yield(ev, err) {
						return
					}
				}
			}, nil
		}), "Coalesce"},
		"bookmarks are not passed on": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			opts.Bookmarks = 0
			return events(ctx, c, opts)
		}), "Bookmarks"},
		"a bookmark overtakes its event": {passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			if n == 10 && err == nil && !yield(textEvent{Type: watchcache.Bookmark, Revision: ev.Revision}, nil) {
				return false
			}
			return yield(ev, err)
		}), "StateThenChanges"},
		"any state is fresh enough": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			opts.AtLeast = 0
			return events(ctx, c, opts)
		}), "AtLeast"},
		"no state is fresh enough": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			if opts.AtLeast != 0 {
				return nil, watchcache.ErrTimeout
			}
			return events(ctx, c, opts)
		}), "AtLeast"},
		"a stale state passes for a fresh one": {staleStates, "AtLeast"},
		"the deadline is not passed on": {wrapped(func(ctx context.Context, c *watchcache.Cache[string], opts textWatch) (textEvents, error) {
			opts.Deadline = time.Time{}
			return events(ctx, c, opts)
		}), "Deadline"},
		"a stalled stream goes on from now": {passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			return errors.Is(err, watchcache.ErrLagged) || yield(ev, err)
		}), "Stalled"},
		"a cut loses what was pending": {followed(func(s *watchcachetest.Source[string]) watchcache.Source[string] { return skipping{s} }), "Cuts"},
		"a listing is of before": {followed(func(s *watchcachetest.Source[string]) watchcache.Source[string] {
			return &forgetful{Source: s}
		}), "Forgetting"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verdict{TB: t}
			watchcachetest.Conform(v, tc.by, time.Second, tc.start)
			v.end()
			if len(v.wrong) == 0 {
				t.Errorf("%s did not tell", tc.by)
			}
		})
	}
}

// TestConformanceTellsAtOnceWhatNothingMends: it does not wait for events that cannot make
// good what has come already. If it does, this test hangs.
func TestConformanceTellsAtOnceWhatNothingMends(t *testing.T) {
	for _, by := range []string{"StateThenChanges", "Stalled"} {
		v := &verdict{TB: t}
		watchcachetest.Conform(v, by, 24*time.Hour, passing(func(n int, ev textEvent, err error, yield func(textEvent, error) bool) bool {
			if n > 20 && err == nil {
				return true // nothing comes any more
			}
			return (n != 20 || err != nil || yield(ev, err)) && yield(ev, err)
		}))
		v.end()
		if len(v.wrong) == 0 {
			t.Errorf("%s did not tell", by)
		}
	}
}

// staleStates answers who wants a fresh state with the one before.
func staleStates(t testing.TB, opts watchcache.Options[string]) subject {
	s := plainSubject(t, opts)
	s.Watch = func(ctx context.Context, opts textWatch) (textEvents, error) {
		if opts.AtLeast < 2 || opts.AtLeast > s.Cache.Position().Revision {
			return events(ctx, s.Cache, opts)
		}
		past, err := s.Cache.SnapshotAt(opts.AtLeast - 1)
		if err != nil {
			return nil, err
		}
		later, err := events(ctx, s.Cache, textWatch{Start: watchcache.After(past.Position())})
		if err != nil {
			return nil, err
		}
		return func(yield func(textEvent, error) bool) {
			for item := range past.All() {
				if !yield(textEvent{Type: watchcache.Added, Key: item.Key, Object: item.Object, Revision: item.Revision, Initial: true}, nil) {
					return
				}
			}
			if yield(textEvent{Type: watchcache.Synced, Revision: past.Position().Revision}, nil) {
				later(yield)
			}
		}, nil
	}
	return s
}

// skipping resumes at the end instead of where it was.
type skipping struct{ *watchcachetest.Source[string] }

func (s skipping) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[string], error] {
	return s.Source.Watch(ctx, s.Position())
}

// forgetful lists a key less each time.
type forgetful struct {
	*watchcachetest.Source[string]
	lists int
}

func (s *forgetful) List(ctx context.Context, atLeast uint64) (watchcache.Position, iter.Seq2[watchcache.Item[string], error], error) {
	at, items, err := s.Source.List(ctx, atLeast)
	s.lists++
	left := s.lists - 1
	return at, func(yield func(watchcache.Item[string], error) bool) {
		for item, err := range items {
			if left > 0 {
				left--
				continue
			}
			if !yield(item, err) {
				return
			}
		}
	}, err
}

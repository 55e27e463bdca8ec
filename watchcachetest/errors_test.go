package watchcachetest_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

type sourceEvent = watchcache.SourceEvent[int]

// last returns how many pairs a sequence has before its error, and the error.
func last[T any](seq iter.Seq2[T, error]) (n int, err error) {
	for _, err := range seq {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// TestErrorsOfSources asks a source itself, with no cache that would try again.
func TestErrorsOfSources(t *testing.T) {
	mine, gone := errors.New("mine"), errors.New("gone")
	ended, end := context.WithCancelCause(context.Background())
	end(gone)
	ctx := context.Background()
	list := func(ctx context.Context) func(*source) (int, error) {
		return func(s *source) (int, error) {
			_, items, err := s.List(ctx, 2)
			if err != nil {
				if items != nil {
					t.Errorf("want no items beside %v", err)
				}
				return 0, err
			}
			return last(items)
		}
	}
	watch := func(ctx context.Context, after position) func(*source) (int, error) {
		return func(s *source) (int, error) { return last(s.Watch(ctx, after)) }
	}
	stream := func(ctx context.Context) func(*source) (int, error) {
		return func(s *source) (int, error) {
			return last(watchcachetest.StreamingSource[int]{Source: s}.Stream(ctx, 2))
		}
	}
	streamOfBoth := func(s *source) (int, error) {
		return last(watchcachetest.StreamingRequestingSource[int]{Source: s}.Stream(ctx, 2))
	}
	request := func(ctx context.Context) func(*source) (int, error) {
		return func(s *source) (int, error) {
			err := watchcachetest.RequestingSource[int]{Source: s}.RequestProgress(ctx)
			if err == nil {
				t.Error("want an error of RequestProgress")
			}
			return 0, err
		}
	}
	requestOfBoth := func(s *source) (int, error) {
		return 0, watchcachetest.StreamingRequestingSource[int]{Source: s}.RequestProgress(ctx)
	}
	// cut ends the stream when it has told all.
	cut := func(ask func(*source) (int, error), err error) func(*source) (int, error) {
		return func(s *source) (int, error) {
			go func() {
				synctest.Wait()
				s.Cut(err)
			}()
			return ask(s)
		}
	}
	// list takes its items when the context has ended in between.
	ends := func(s *source) (int, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		_, items, err := s.List(ctx, 2)
		cancel(gone)
		if err != nil {
			t.Error(err)
		}
		return last(items)
	}
	restart := func(s *source) (int, error) {
		go func() {
			synctest.Wait()
			s.Restart(at(9))
		}()
		return last(s.Watch(ctx, at(1)))
	}
	compacted := func(s *source) (int, error) {
		defer s.Hold()() // so that it has yet to tell of both
		go func() {
			synctest.Wait()
			s.Compact(1)
		}()
		return last(s.Watch(ctx, at(0)))
	}
	foreign := position{Epoch: "f", Revision: 1}
	for _, row := range []struct {
		name   string
		before func(*source)
		ask    func(*source) (int, error)
		n      int // pairs before the error
		want   error
	}{
		{"List fails", func(s *source) { s.FailLists(1, mine) }, list(ctx), 0, mine},
		{"List fails, without an error of the test's", func(s *source) { s.FailLists(1, nil) }, list(ctx), 0, watchcachetest.ErrScripted},
		{"List's context", nil, list(ended), 0, gone},
		{"items fail", func(s *source) { s.FailListing(1, mine) }, list(ctx), 1, mine},
		{"items fail, without an error of the test's", func(s *source) { s.FailListing(9, nil) }, list(ctx), 2, watchcachetest.ErrScripted},
		{"items' context", nil, ends, 0, gone},
		{"Watch fails", func(s *source) { s.FailWatches(1, mine) }, watch(ctx, at(1)), 0, mine},
		{"Watch fails, without an error of the test's", func(s *source) { s.FailWatches(1, nil) }, watch(ctx, at(1)), 0, watchcachetest.ErrScripted},
		{"Watch's context", nil, watch(ended, at(1)), 0, gone},
		{"Watch is cut", nil, cut(watch(ctx, at(1)), mine), 1, mine},
		{"Watch is cut without an error", nil, cut(watch(ctx, at(1)), nil), 1, nil},
		{"Watch, the source restarts", nil, restart, 1, watchcachetest.ErrScripted},
		{"Watch, compacted meanwhile", nil, compacted, 0, &watchcache.ExpiredError{Requested: at(0), Oldest: at(1)}},
		{"Watch after what was compacted", func(s *source) { s.Compact(2) }, watch(ctx, at(1)), 0, &watchcache.ExpiredError{Requested: at(1), Oldest: at(2)}},
		{"Watch after another epoch", nil, watch(ctx, foreign), 0, &watchcache.ExpiredError{Requested: foreign, Oldest: at(0)}},
		{"Watch beyond the source", nil, watch(ctx, at(3)), 0, &watchcache.ExpiredError{Requested: at(3), Oldest: at(0)}},
		{"Stream fails", func(s *source) { s.FailLists(1, mine) }, stream(ctx), 0, mine},
		{"Stream's listing fails", func(s *source) { s.FailListing(1, mine) }, stream(ctx), 1, mine},
		{"Stream's context", nil, stream(ended), 0, gone},
		{"Stream is cut", nil, cut(stream(ctx), mine), 3, mine},
		{"Stream of both is cut", nil, cut(streamOfBoth, mine), 3, mine},
		{"RequestProgress fails", func(s *source) { s.FailProgressRequests(1, mine) }, request(ctx), 0, mine},
		{"RequestProgress fails, without an error of the test's", func(s *source) { s.FailProgressRequests(1, nil) }, requestOfBoth, 0, watchcachetest.ErrScripted},
		{"RequestProgress's context", nil, request(ended), 0, gone},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := watchcachetest.NewSource[int]("e")
				s.Put("a", 1)
				s.Put("b", 2)
				if row.before != nil {
					row.before(s)
				}
				n, err := row.ask(s)
				same := errors.Is(err, row.want)
				if want, ok := row.want.(*watchcache.ExpiredError); ok {
					got, ok := errors.AsType[*watchcache.ExpiredError](err)
					same = ok && *got == *want && errors.Is(err, watchcache.ErrExpired) && errors.Is(err, watchcache.ErrEpoch) == (want.Requested.Epoch != "e")
				}
				if !same || n != row.n {
					t.Errorf("want %v after %d, got %v after %d", row.want, row.n, err, n)
				}
				if open := s.Calls().Open; open != 0 || len(s.Items()) != 2 && row.want != watchcachetest.ErrScripted {
					t.Errorf("want nothing open and nothing lost, got %d open and %v", open, s.Items())
				}
			})
		})
	}
}

// TestErrorsOfObservedSources: what a checker observes fails as what it is of.
func TestErrorsOfObservedSources(t *testing.T) {
	mine := errors.New("mine")
	s := watchcachetest.NewSource[int]("e")
	s.Put("a", 1)
	check := watchcachetest.NewChecker(options{})
	o := check.Source(newCache(t, options{Mirror: true}), watchcachetest.StreamingRequestingSource[int]{Source: s})
	s.FailLists(1, mine)
	if _, items, err := o.List(t.Context(), 0); err != mine || items != nil {
		t.Errorf("want List to fail, got %v", err)
	}
	s.FailListing(0, mine)
	_, items, err := o.List(t.Context(), 0)
	if n, items := last(items); err != nil || n != 0 || items != mine {
		t.Errorf("want the items to fail, got %v and %v after %d", err, items, n)
	}
	s.FailWatches(1, mine)
	if n, err := last(o.Watch(t.Context(), at(1))); n != 0 || err != mine {
		t.Errorf("want Watch to fail, got %v after %d", err, n)
	}
	s.FailListing(1, mine)
	var stream iter.Seq2[sourceEvent, error] = o.(watchcache.Streamer[int]).Stream(t.Context(), 0)
	if n, err := last(stream); n != 1 || err != mine {
		t.Errorf("want Stream to fail, got %v after %d", err, n)
	}
	s.FailProgressRequests(1, mine)
	if err := o.(watchcache.ProgressRequester).RequestProgress(t.Context()); err != mine {
		t.Errorf("want RequestProgress to fail, got %v", err)
	}
	check.Verify(t) // none of it has reached the cache
}

func TestErrorsOfWriters(t *testing.T) {
	for _, row := range []struct {
		name  string
		write func(*watchcachetest.Writer[int]) error
		want  error
	}{
		{"Put", func(w *watchcachetest.Writer[int]) error { _, err := w.Put("", 1); return err }, watchcache.ErrInvalidKey},
		{"Delete", func(w *watchcachetest.Writer[int]) error { _, err := w.Delete("none"); return err }, watchcache.ErrNotFound},
		{"Apply", func(w *watchcachetest.Writer[int]) error {
			_, err := w.Apply(watchcache.Commit[int]{Revision: 1, Changes: []change{{Key: "b"}}})
			return err
		}, watchcache.ErrRevisionOrder},
		{"Progress", func(w *watchcachetest.Writer[int]) error { return w.Progress(0) }, watchcache.ErrRevisionOrder},
		{"Replace", func(w *watchcachetest.Writer[int]) error {
			return w.Replace(position{}, listing(item{Key: "b"}, item{}))
		}, watchcache.ErrInvalidKey},
	} {
		c := newCache(t, options{Epoch: "e"})
		check := watchcachetest.NewChecker(options{})
		w := watchcachetest.NewWriter(check, c)
		if _, err := w.Put("a", 1); err != nil {
			t.Fatal(err)
		}
		if err := row.write(w); !errors.Is(err, row.want) || c.Position() != at(1) || c.Snapshot().Len() != 1 {
			t.Errorf("%s: want %v and nothing changed, got %v at %v", row.name, row.want, err, c.Position())
		}
		check.Snapshot(c.Snapshot())
		check.Verify(t) // the checker was not told of it
		c.Close()
		if _, err := w.Put("a", 2); !errors.Is(err, watchcache.ErrClosed) {
			t.Errorf("want ErrClosed after Close, got %v", err)
		}
	}
}

func TestErrorsOfCheckersAreViolations(t *testing.T) {
	check := written()
	check.Watcher("mute", nil, at(1)).Ended(nil)
	check.Committed(at(7), change{Key: "a"}) // goes back
	err := check.Err()
	v, ok := errors.AsType[*watchcachetest.Violation](err)
	if !ok || v.Contract != 12 || v.Watcher != "" || v.Why == "" || v.Expected == "" || v.Got == "" {
		t.Errorf("want the writing side's violation of contract 12 first, got %+v of %v", v, err)
	}
	if many, ok := err.(interface{ Unwrap() []error }); !ok || len(many.Unwrap()) != 2 {
		t.Errorf("want both violations joined, got %v", err)
	} else if v, ok := errors.AsType[*watchcachetest.Violation](many.Unwrap()[1]); !ok || v.Contract != 5 || v.Watcher != "mute" {
		t.Errorf("want the watcher's violation of contract 5, got %+v", v)
	}
}

func TestErrorsOfFollowers(t *testing.T) {
	c := newCache(t, options{})
	w, err := c.Watch(t.Context(), watchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := watchcachetest.Follow(t, w)
	if err := f.Err(); err != nil {
		t.Errorf("want no error before the end, got %v", err)
	}
	c.Close()
	<-f.Done()
	if err := f.Err(); err != w.Err() || !errors.Is(err, watchcache.ErrClosed) {
		t.Errorf("want ErrClosed, got %v", err)
	}
}

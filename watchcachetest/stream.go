package watchcachetest

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/watchcache/watchcache"
)

// stream is an open sequence of Watch or Stream. Source.mu guards it.
type stream[T any] struct {
	after watchcache.Position // everything up to it was told
	queue []told[T]
	over  bool
	err   error // why it is over; nil: it just ends
}

func (st *stream[T]) end(err error) {
	if !st.over {
		st.over, st.err, st.queue = true, err, nil
	}
}

func (st *stream[T]) inject(at watchcache.Position, events []watchcache.SourceEvent[T]) {
	for _, event := range events {
		st.queue = append(st.queue, told[T]{at, event})
	}
}

// List implements [watchcache.Source]. It waits until the source is at atLeast.
//
// Errors: what [Source.FailLists] says; the context's cause. The items' error is
// what [Source.FailListing] says, or the context's cause.
func (s *Source[T]) List(ctx context.Context, atLeast uint64) (watchcache.Position, iter.Seq2[watchcache.Item[T], error], error) {
	s.mu.Lock()
	s.calls.Lists++
	s.calls.AtLeast = append(s.calls.AtLeast, atLeast)
	s.mu.Unlock()
	l, err := s.list(ctx, atLeast, nil)
	if err != nil {
		return watchcache.Position{}, nil, err
	}
	return l.at, func(yield func(watchcache.Item[T], error) bool) {
		for _, item := range l.items {
			if ctx.Err() != nil {
				yield(watchcache.Item[T]{}, context.Cause(ctx))
				return
			}
			if !yield(item, nil) {
				return
			}
		}
		if l.err != nil {
			yield(watchcache.Item[T]{}, l.err)
		}
	}, nil
}

// Watch implements [watchcache.Source]. Its errors: those of
// [Source.FailWatches] and [Source.Cut]; a [watchcache.ExpiredError] for a
// position that was compacted, is of another epoch, or is beyond the source's;
// [ErrScripted] after a Restart; the context's cause.
func (s *Source[T]) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[T], error] {
	return func(yield func(watchcache.SourceEvent[T], error) bool) {
		s.mu.Lock()
		s.calls.Watches++
		s.calls.After = append(s.calls.After, after)
		st := &stream[T]{after: after}
		s.open(st)
		switch err := s.faults.watches.take(); {
		case err != nil:
			st.end(err)
		case after.Epoch != s.at.Epoch || before(after, s.compacted) || before(s.at, after):
			st.end(&watchcache.ExpiredError{Requested: after, Oldest: s.compacted})
		default:
			injected := st.queue
			st.queue = nil
			for _, h := range s.history {
				if before(after, h.at) {
					st.queue = append(st.queue, h)
				}
			}
			st.queue = append(st.queue, injected...)
		}
		s.mu.Unlock()
		defer s.close(st)
		s.follow(ctx, st, yield)
	}
}

// stream is what the sources that are a [watchcache.Streamer] have as Stream.
func (s *Source[T]) stream(ctx context.Context, atLeast uint64) iter.Seq2[watchcache.SourceEvent[T], error] {
	return func(yield func(watchcache.SourceEvent[T], error) bool) {
		s.mu.Lock()
		s.calls.Streams++
		s.calls.AtLeast = append(s.calls.AtLeast, atLeast)
		s.mu.Unlock()
		st := &stream[T]{}
		l, err := s.list(ctx, atLeast, st)
		if err != nil {
			yield(watchcache.SourceEvent[T]{}, err)
			return
		}
		defer s.close(st)
		for _, item := range l.items {
			if err, over := s.interrupted(ctx, st); over {
				if err != nil {
					yield(watchcache.SourceEvent[T]{}, err)
				}
				return
			}
			if !yield(watchcache.ItemEvent(item), nil) {
				return
			}
		}
		if l.err != nil {
			yield(watchcache.SourceEvent[T]{}, l.err)
			return
		}
		if yield(watchcache.SyncedEvent[T](l.at), nil) {
			s.follow(ctx, st, yield)
		}
	}
}

// requestProgress is what the sources that are a [watchcache.ProgressRequester]
// have as RequestProgress.
func (s *Source[T]) requestProgress(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.ProgressRequests++
	if err := s.faults.progress.take(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, st := range s.streams {
		st.queue = append(st.queue, told[T]{s.at, watchcache.ProgressEvent[T](s.at.Revision)})
	}
	s.wake()
	return nil
}

// listing is a state as it is going to be told.
type listing[T any] struct {
	at    watchcache.Position
	items []watchcache.Item[T]
	err   error // after the items
}

// list takes the state down, and opens a stream that goes on from there.
func (s *Source[T]) list(ctx context.Context, atLeast uint64, st *stream[T]) (listing[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.await(ctx, func() bool { return s.faults.held == 0 }); err != nil {
		return listing[T]{}, err
	}
	if later := s.faults.later(); later != nil {
		if err := s.sleep(ctx, later, nil); err != nil {
			return listing[T]{}, err
		}
	}
	if err := s.faults.lists.take(); err != nil {
		return listing[T]{}, err
	}
	err := s.await(ctx, func() bool { return s.faults.held == 0 && (s.anew || s.at.Revision >= atLeast) })
	if err != nil {
		return listing[T]{}, err
	}
	l := listing[T]{at: s.at, items: s.sorted()}
	if key := s.faults.repeat; key != "" {
		s.faults.repeat = ""
		if item, ok := s.items[key]; ok {
			l.items = append(l.items, item)
		}
	}
	if s.faults.halfway != nil {
		l.items = l.items[:min(max(s.faults.items, 0), len(l.items))]
		l.err, s.faults.halfway = s.faults.halfway, nil
	}
	if st != nil {
		st.after = s.at
		s.open(st)
	}
	return l, nil
}

// follow tells what happens, until the stream is over.
func (s *Source[T]) follow(ctx context.Context, st *stream[T], yield func(watchcache.SourceEvent[T], error) bool) {
	for {
		event, err, ok := s.next(ctx, st)
		if !ok || !yield(event, err) || err != nil {
			return
		}
	}
}

// next waits for the stream's next event; false: the stream just ends.
func (s *Source[T]) next(ctx context.Context, st *stream[T]) (event watchcache.SourceEvent[T], err error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := func() bool { return st.over || s.faults.held == 0 && len(st.queue) > 0 }
	if err := s.await(ctx, ready); err != nil {
		return event, err, true
	}
	if later := s.faults.later(); later != nil && !st.over {
		if err := s.sleep(ctx, later, st); err != nil {
			return event, err, true
		}
		if err := s.await(ctx, ready); err != nil {
			return event, err, true
		}
	}
	if st.over {
		return event, st.err, st.err != nil
	}
	next := st.queue[0]
	st.queue = slices.Delete(st.queue, 0, 1)
	st.after = next.at
	return next.event, nil, true
}

// interrupted reports whether a stream must end in the middle of its listing.
func (s *Source[T]) interrupted(ctx context.Context, st *stream[T]) (error, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx), true
	}
	return st.err, st.over
}

// open makes a stream one of the source's. The caller holds mu.
func (s *Source[T]) open(st *stream[T]) {
	s.streams = append(s.streams, st)
	st.inject(s.at, s.injected)
	s.injected = nil
}

func (s *Source[T]) close(st *stream[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, func(other *stream[T]) bool { return other == st })
}

// await waits until met says so. The caller holds mu, and holds it again after.
func (s *Source[T]) await(ctx context.Context, met func() bool) error {
	for {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case met():
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}

// sleep waits for the clock, or until the stream is over. The caller holds mu, and
// holds it again after.
func (s *Source[T]) sleep(ctx context.Context, later <-chan time.Time, st *stream[T]) error {
	for st == nil || !st.over {
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		expired := false
		select {
		case <-later:
			expired = true
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case expired:
			return nil
		}
	}
	return nil
}

// before reports whether a comes before b in one numbering.
func before(a, b watchcache.Position) bool {
	return a.Revision < b.Revision || a.Revision == b.Revision && a.Part < b.Part
}

package watchcachetest

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/watchcache/watchcache"
)

// Source returns a source that passes on what another one tells a cache's Run,
// and tells the checker what the cache accepted of it. It implements the optional
// interfaces that the other one does. Run must be the cache's only writer.
//
// Its methods may be called as those of the other one.
func (c *Checker[T]) Source(cache *watchcache.Cache[T], source watchcache.Source[T]) watchcache.Source[T] {
	o := &observed[T]{check: c, cache: cache, source: source}
	streamer, streams := source.(watchcache.Streamer[T])
	requester, requests := source.(watchcache.ProgressRequester)
	switch {
	case streams && requests:
		return struct {
			*observed[T]
			observedStream[T]
			watchcache.ProgressRequester
		}{o, observedStream[T]{o, streamer}, requester}
	case streams:
		return struct {
			*observed[T]
			observedStream[T]
		}{o, observedStream[T]{o, streamer}}
	case requests:
		return struct {
			*observed[T]
			watchcache.ProgressRequester
		}{o, requester}
	}
	return o
}

// observed tells a checker what a source tells a cache.
type observed[T any] struct {
	check  *Checker[T]
	cache  *watchcache.Cache[T]
	source watchcache.Source[T]

	mu     sync.Mutex
	listed []watchcache.Item[T]
	whole  bool // listed is complete, and the cache has not been seen to accept it
}

// List is what it observes.
func (o *observed[T]) List(ctx context.Context, atLeast uint64) (watchcache.Position, iter.Seq2[watchcache.Item[T], error], error) {
	o.mu.Lock()
	o.listed, o.whole = nil, false
	o.mu.Unlock()
	at, items, err := o.source.List(ctx, atLeast)
	if err != nil {
		return at, nil, err
	}
	return at, func(yield func(watchcache.Item[T], error) bool) {
		var listed []watchcache.Item[T]
		for item, err := range items {
			listed = append(listed, item)
			if !yield(item, err) {
				return
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.listed, o.whole = listed, true
	}, nil
}

// Watch is what it observes. To call it is to have accepted the listing before.
func (o *observed[T]) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[T], error] {
	o.mu.Lock()
	if o.whole {
		o.check.Replaced(o.cache.Position(), o.listed...)
	}
	o.listed, o.whole = nil, false
	o.mu.Unlock()
	stream := o.source.Watch(ctx, after)
	return func(yield func(watchcache.SourceEvent[T], error) bool) {
		o.follow(stream, nil, yield)
	}
}

// observedStream is the part of an observed source that is a Streamer.
type observedStream[T any] struct {
	of       *observed[T]
	streamer watchcache.Streamer[T]
}

// Stream is what it observes.
func (o observedStream[T]) Stream(ctx context.Context, atLeast uint64) iter.Seq2[watchcache.SourceEvent[T], error] {
	return func(yield func(watchcache.SourceEvent[T], error) bool) {
		var items []watchcache.Item[T]
		o.of.follow(o.streamer.Stream(ctx, atLeast), &items, yield)
	}
}

// follow passes on a stream. That the cache comes back for more means that it has
// accepted what it got.
func (o *observed[T]) follow(stream iter.Seq2[watchcache.SourceEvent[T], error], items *[]watchcache.Item[T], yield func(watchcache.SourceEvent[T], error) bool) {
	for ev, err := range stream {
		changes := slices.Clone(ev.Commit.Changes)
		if !yield(ev, err) || err != nil {
			return
		}
		switch {
		case ev.Kind == watchcache.SourceItem && items != nil:
			*items = append(*items, ev.Item)
		case ev.Kind == watchcache.SourceSynced && items != nil:
			o.check.Replaced(o.cache.Position(), *items...)
			items = nil
		case ev.Kind == watchcache.SourceCommit && len(changes) > 0:
			o.check.Committed(o.cache.Position(), changes...)
		case ev.Kind == watchcache.SourceCommit, ev.Kind == watchcache.SourceProgress:
			o.check.Progressed(o.cache.Position())
		}
	}
}

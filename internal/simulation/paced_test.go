package simulation_test

import (
	"context"
	"iter"
	"time"

	"github.com/watchcache/watchcache"
)

// paced is a source that waits a nanosecond before each event of a stream. In a
// testing/synctest bubble that lets everybody else come to rest: of a consumer that
// is waiting, a run of commits would overtake as many as the machine's scheduler
// likes.
type paced struct{ watchcache.Source[int] }

// Watch implements watchcache.Source.
func (p paced) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[int], error] {
	return pace(p.Source.Watch(ctx, after))
}

func pace(stream iter.Seq2[watchcache.SourceEvent[int], error]) iter.Seq2[watchcache.SourceEvent[int], error] {
	return func(yield func(watchcache.SourceEvent[int], error) bool) {
		for ev, err := range stream {
			time.Sleep(1 * time.Nanosecond)
			if !yield(ev, err) {
				return
			}
		}
	}
}

// The other three have the optional interfaces of what they pace.
type (
	pacedStreaming           struct{ paced }
	pacedRequesting          struct{ paced }
	pacedStreamingRequesting struct{ pacedStreaming }
)

// Stream implements watchcache.Streamer.
func (p pacedStreaming) Stream(ctx context.Context, atLeast uint64) iter.Seq2[watchcache.SourceEvent[int], error] {
	return pace(p.Source.(watchcache.Streamer[int]).Stream(ctx, atLeast))
}

// RequestProgress implements watchcache.ProgressRequester.
func (p pacedRequesting) RequestProgress(ctx context.Context) error {
	return p.Source.(watchcache.ProgressRequester).RequestProgress(ctx)
}

// RequestProgress implements watchcache.ProgressRequester.
func (p pacedStreamingRequesting) RequestProgress(ctx context.Context) error {
	return p.Source.(watchcache.ProgressRequester).RequestProgress(ctx)
}

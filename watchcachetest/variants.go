package watchcachetest

import (
	"context"
	"iter"

	"github.com/watchcache/watchcache"
)

// StreamingSource is a [Source] that is a [watchcache.Streamer] too. It shares
// everything with the source in it, which the test goes on to script.
type StreamingSource[T any] struct{ *Source[T] }

// Stream implements [watchcache.Streamer]. It waits until the source is at
// atLeast. Its errors are those of List, of the items, and of a Watch that has
// begun.
func (s StreamingSource[T]) Stream(ctx context.Context, atLeast uint64) iter.Seq2[watchcache.SourceEvent[T], error] {
	return s.stream(ctx, atLeast)
}

// RequestingSource is a [Source] that is a [watchcache.ProgressRequester] too. It
// shares everything with the source in it.
type RequestingSource[T any] struct{ *Source[T] }

// RequestProgress implements [watchcache.ProgressRequester]: each open stream
// tells the source's revision next.
//
// Errors: what [Source.FailProgressRequests] says; the context's cause.
func (s RequestingSource[T]) RequestProgress(ctx context.Context) error {
	return s.requestProgress(ctx)
}

// StreamingRequestingSource is a [Source] that is both a [watchcache.Streamer]
// and a [watchcache.ProgressRequester]. It shares everything with the source in
// it.
type StreamingRequestingSource[T any] struct{ *Source[T] }

// Stream is [StreamingSource.Stream].
func (s StreamingRequestingSource[T]) Stream(ctx context.Context, atLeast uint64) iter.Seq2[watchcache.SourceEvent[T], error] {
	return s.stream(ctx, atLeast)
}

// RequestProgress is [RequestingSource.RequestProgress].
func (s StreamingRequestingSource[T]) RequestProgress(ctx context.Context) error {
	return s.requestProgress(ctx)
}

package watchcache

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Source is where a mirror's state comes from: an etcd prefix, a Kubernetes
// resource, a database's change feed. An adapter implements it; [Cache.Run] does
// the rest. Its sequences end when their context does.
//
// Of their errors, one that wraps [ErrExpired] means that Watch cannot go on from
// that position: Run lists anew. [Terminal] ends Run, [RetryAfter] sets the wait
// before the next try; all others are transient.
type Source[T any] interface {
	// List returns the state, never older than revision atLeast, and its position.
	// A source whose numbering went back, or is another one now, must not wait for
	// atLeast: it returns what it has, and the cache begins a new epoch. The items may
	// come in any order, each key once. An Item's Revision of 0 is unknown.
	List(ctx context.Context, atLeast uint64) (at Position, items iter.Seq2[Item[T], error], err error)
	// Watch returns the changes after a position, in order: commits, each above the one
	// before, and progress, which is not below it. Progress at the position itself
	// tells that the source is there, though it has nothing new. The first error ends
	// the sequence.
	Watch(ctx context.Context, after Position) iter.Seq2[SourceEvent[T], error]
}

// Streamer is a [Source] that can send the state, then its position, then
// changes, on one stream. Run uses Stream in place of List, and goes on to use
// Watch to resume.
type Streamer[T any] interface {
	// Stream returns items, synced, and then commits and progress. The state is
	// never older than revision atLeast, as of List.
	Stream(ctx context.Context, atLeast uint64) iter.Seq2[SourceEvent[T], error]
}

// ProgressRequester is a [Source] that can be asked to tell, on its stream, how
// far it is. It is asked, one call at a time, while somebody waits for a
// revision.
type ProgressRequester interface {
	RequestProgress(ctx context.Context) error
}

// SourceEventKind says what a [SourceEvent] is.
type SourceEventKind uint8

const (
	// SourceItem: Item is part of the initial state. Only of a [Streamer].
	SourceItem SourceEventKind = iota + 1
	// SourceSynced: the initial state is complete, at position At. Only of a
	// [Streamer].
	SourceSynced
	// SourceCommit: Commit happened.
	SourceCommit
	// SourceProgress: nothing else happened up to At.Revision.
	SourceProgress
)

// SourceEvent is one thing that a source tells.
type SourceEvent[T any] struct {
	Kind   SourceEventKind
	Item   Item[T]
	At     Position
	Commit Commit[T]
}

// ItemEvent is a [SourceItem].
func ItemEvent[T any](item Item[T]) SourceEvent[T] {
	return SourceEvent[T]{Kind: SourceItem, Item: item}
}

// SyncedEvent is a [SourceSynced].
func SyncedEvent[T any](at Position) SourceEvent[T] {
	return SourceEvent[T]{Kind: SourceSynced, At: at}
}

// CommitEvent is a [SourceCommit].
func CommitEvent[T any](commit Commit[T]) SourceEvent[T] {
	return SourceEvent[T]{Kind: SourceCommit, Commit: commit}
}

// ProgressEvent is a [SourceProgress].
func ProgressEvent[T any](revision uint64) SourceEvent[T] {
	return SourceEvent[T]{Kind: SourceProgress, At: Position{Revision: revision}}
}

// Terminal marks an error as one that trying again does not mend: Run returns it,
// with whatever it was wrapped in on the way.
// Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }

// RetryAfter marks an error as one after which to wait for d before the next
// try. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, d}
}

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// errStreamEnded is what a source's stream that just ends counts as.
var errStreamEnded = errors.New("watchcache: the source's stream ended")

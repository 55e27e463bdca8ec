package watchcache

import (
	"errors"
	"fmt"
	"time"
)

// The sentinels that errors of this package unwrap to; test with [errors.Is].
var (
	// ErrClosed: the cache was closed, or is shutting down.
	ErrClosed = errors.New("watchcache: closed")
	// ErrStopped: the watcher's consumer ended it, by Stop or by leaving its loop.
	ErrStopped = errors.New("watchcache: watcher stopped")
	// ErrExpired: what was asked for is no longer, or never was, in this history;
	// start again from the state. See [ExpiredError].
	ErrExpired = errors.New("watchcache: position expired")
	// ErrStalled: the stall policy ended a watcher that took nothing in its
	// initial phase. See [StalledError].
	ErrStalled = errors.New("watchcache: watcher stalled")
	// ErrLagged: the stall policy ended a watcher that did not keep up while
	// streaming. See [StalledError].
	ErrLagged = errors.New("watchcache: watcher lagged")
	// ErrFuture: a position or revision that this cache has not reached. See
	// [FutureError].
	ErrFuture = errors.New("watchcache: position is in the future")
	// ErrEpoch: a position of another numbering of revisions.
	ErrEpoch = errors.New("watchcache: position is of another epoch")
	// ErrRevisionOrder: a revision that is not above the last one. See
	// [RevisionError].
	ErrRevisionOrder = errors.New("watchcache: revision out of order")
	// ErrNotReady: the cache has no state yet.
	ErrNotReady = errors.New("watchcache: not ready")
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("watchcache: not found")
	// ErrInvalidOption: an option is out of range or contradicts another. See
	// [OptionError].
	ErrInvalidOption = errors.New("watchcache: invalid option")
	// ErrInvalidKey: an empty key, or one that a listing repeats. See [KeyError].
	ErrInvalidKey = errors.New("watchcache: invalid key")
	// ErrInvalidPosition: a text that is no position.
	ErrInvalidPosition = errors.New("watchcache: invalid position")
	// ErrTooManyWatchers: Options.MaxWatchers is reached.
	ErrTooManyWatchers = errors.New("watchcache: too many watchers")
	// ErrDeadline: WatchOptions.Deadline has passed.
	ErrDeadline = errors.New("watchcache: watch deadline passed")
	// ErrTimeout: WatchOptions.AtLeastWait has passed.
	ErrTimeout = errors.New("watchcache: timed out")
	// ErrCallbackPanic: a function that the user supplied panicked. See
	// [PanicError].
	ErrCallbackPanic = errors.New("watchcache: callback panicked")
	// ErrInUse: a watcher that has its consumer already, or a cache that has its
	// Run.
	ErrInUse = errors.New("watchcache: already in use")
	// ErrSource: a [Source] that broke its contract.
	ErrSource = errors.New("watchcache: source broke its contract")
)

// ExpiredError says that history cannot answer from a position. It unwraps to
// ErrExpired, and to ErrEpoch as well if the position is of another numbering.
type ExpiredError struct {
	Requested Position // what was asked for
	Oldest    Position // the oldest position that can be resumed now
	// HoleEnd is set where Requested is above Oldest and lies in the hole that a
	// relist has left in history: the position of the relist, from which on one can
	// resume again.
	HoleEnd Position
}

func (e *ExpiredError) Error() string {
	if e.Requested.IsZero() {
		return fmt.Sprintf("%v: the zero Position is no place to resume after, the oldest is %v", ErrExpired, e.Oldest)
	}
	if e.foreign() {
		return fmt.Sprintf("%v: %v is of another epoch than %v", ErrExpired, e.Requested, e.Oldest)
	}
	if !e.HoleEnd.IsZero() {
		return fmt.Sprintf("%v: %v cannot be resumed, the changes after it are not known up to the relist at %v", ErrExpired, e.Requested, e.HoleEnd)
	}
	if e.Requested.compare(e.Oldest.Revision, e.Oldest.Part) >= 0 {
		// Options.Relist has ended a client that was ahead.
		return fmt.Sprintf("%v: it was at %v when the state was listed anew at %v", ErrExpired, e.Requested, e.Oldest)
	}
	return fmt.Sprintf("%v: %v cannot be resumed, the oldest that can is %v", ErrExpired, e.Requested, e.Oldest)
}

func (e *ExpiredError) foreign() bool { return e.Requested.Epoch != e.Oldest.Epoch }

// Unwrap returns ErrExpired, and ErrEpoch where that is the cause.
func (e *ExpiredError) Unwrap() []error {
	if e.foreign() {
		return []error{ErrExpired, ErrEpoch}
	}
	return []error{ErrExpired}
}

// FutureError says that a position lies beyond what the cache has. It unwraps to
// ErrFuture.
type FutureError struct {
	Requested Position // what was asked for
	Head      Position // the newest position of the cache
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("%v: %v is beyond %v", ErrFuture, e.Requested, e.Head)
}

// Unwrap returns ErrFuture.
func (e *FutureError) Unwrap() error { return ErrFuture }

// StalledError says why a stall policy ended a watcher. It unwraps to ErrStalled
// in the initial phase, and to ErrLagged while streaming.
type StalledError struct {
	Phase    Phase
	Idle     time.Duration // how long nothing had been taken
	Lag      int           // events that the watcher had before it
	Overrun  bool          // history was about to drop what it needed
	Position Position      // where it was; zero in the initial phase
}

func (e *StalledError) Error() string {
	switch {
	case e.Phase == PhaseInitial:
		return fmt.Sprintf("%v: nothing of the initial state taken for %v", ErrStalled, e.Idle)
	case e.Overrun:
		return fmt.Sprintf("%v: overrun by history at %v, %d events behind", ErrLagged, e.Position, e.Lag)
	}
	return fmt.Sprintf("%v: %d events behind at %v, nothing taken for %v", ErrLagged, e.Lag, e.Position, e.Idle)
}

// Unwrap returns ErrStalled or ErrLagged.
func (e *StalledError) Unwrap() error {
	if e.Phase == PhaseInitial {
		return ErrStalled
	}
	return ErrLagged
}

// PanicError carries the panic of a function that the user supplied. It unwraps
// to ErrCallbackPanic, and to the panic's value if that is an error. A function
// that ended its goroutine with [runtime.Goexit] counts as one that panicked with
// the string "runtime.Goexit".
type PanicError struct {
	Callback string // which function, by the name of its option or method
	Value    any    // what it panicked with
	Stack    []byte // where, as of [runtime/debug.Stack]; nil after a Goexit
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrCallbackPanic, e.Callback, e.Value)
}

// Unwrap returns ErrCallbackPanic and, where it is one, the error in Value.
func (e *PanicError) Unwrap() []error {
	if err, ok := e.Value.(error); ok {
		return []error{ErrCallbackPanic, err}
	}
	return []error{ErrCallbackPanic}
}

// RevisionError names a revision that does not follow the head. It unwraps to
// ErrRevisionOrder.
type RevisionError struct {
	Revision uint64 // what was given; the head when revisions are used up
	Head     uint64 // the newest revision of the cache
}

func (e *RevisionError) Error() string {
	return fmt.Sprintf("%v: %d does not follow %d", ErrRevisionOrder, e.Revision, e.Head)
}

// Unwrap returns ErrRevisionOrder.
func (e *RevisionError) Unwrap() error { return ErrRevisionOrder }

// KeyError names a key that cannot be used. It unwraps to ErrInvalidKey.
type KeyError struct {
	Key    string
	Reason string
}

func (e *KeyError) Error() string { return fmt.Sprintf("%v: %q: %s", ErrInvalidKey, e.Key, e.Reason) }

// Unwrap returns ErrInvalidKey.
func (e *KeyError) Unwrap() error { return ErrInvalidKey }

// OptionError names an option that cannot be used. It unwraps to
// ErrInvalidOption.
type OptionError struct {
	Field  string // the field, such as "Options.Capacity"
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalidOption, e.Field, e.Reason)
}

// Unwrap returns ErrInvalidOption.
func (e *OptionError) Unwrap() error { return ErrInvalidOption }

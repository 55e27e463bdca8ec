package watchcachetest

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/watchcache/watchcache"
)

// Follower takes everything that a watcher has, keeps it, and rebuilds the state
// from it. [Follow] and [Watched.Follow] make it. All methods may be called
// concurrently.
type Follower[T any] struct {
	watcher *watchcache.Watcher[T]
	done    chan struct{}

	mu     sync.Mutex
	events []watchcache.Event[T]
	state  map[string]watchcache.Item[T]
	synced bool
	err    error
}

// Follow takes all of a watcher's events, on a goroutine of its own, until it
// ends. The end of the test stops the watcher and waits for that goroutine.
//
// In a testing/synctest bubble, call synctest.Wait before looking at what was
// taken.
func Follow[T any](t testing.TB, w *watchcache.Watcher[T]) *Follower[T] {
	t.Helper()
	return follow(t, w, nil)
}

// Follow is the function [Follow], and tells the checker all of it: each event,
// the watcher's position after it, and how it ended.
func (w *Watched[T]) Follow(t testing.TB, watcher *watchcache.Watcher[T]) *Follower[T] {
	t.Helper()
	return follow(t, watcher, w)
}

func follow[T any](t testing.TB, w *watchcache.Watcher[T], watched *Watched[T]) *Follower[T] {
	f := &Follower[T]{watcher: w, done: make(chan struct{}), state: make(map[string]watchcache.Item[T])}
	go f.run(watched)
	t.Cleanup(f.Stop)
	return f
}

func (f *Follower[T]) run(watched *Watched[T]) {
	defer close(f.done)
	for ev, err := range f.watcher.Events() {
		if watched != nil && err != nil {
			watched.Ended(err)
		} else if watched != nil {
			watched.Took(ev)
			watched.Position(f.watcher.Position())
		}
		f.take(ev, err)
	}
}

func (f *Follower[T]) take(ev watchcache.Event[T], err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.err = err
		return
	}
	f.events = append(f.events, ev)
	switch ev.Type {
	case watchcache.Added, watchcache.Modified:
		f.state[ev.Key] = watchcache.Item[T]{Key: ev.Key, Object: ev.Object, Revision: ev.Revision}
	case watchcache.Deleted:
		delete(f.state, ev.Key)
	case watchcache.Reset:
		f.synced = false
		clear(f.state)
	case watchcache.Synced:
		f.synced = true
	}
}

// Events returns what was taken so far, in order.
func (f *Follower[T]) Events() []watchcache.Event[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// State returns the state as rebuilt from the events, by key. Each item has the
// revision of the event that brought it. It is the whole state that the watcher
// selects only if the watcher started with the state, and Synced is true.
func (f *Follower[T]) State() map[string]watchcache.Item[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.state)
}

// Synced reports whether the last initial phase has ended with Synced.
func (f *Follower[T]) Synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced
}

// Err returns the error that ended the stream, and nil before its end was taken.
func (f *Follower[T]) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Done returns a channel that is closed when the end of the stream was taken.
func (f *Follower[T]) Done() <-chan struct{} { return f.done }

// Stop stops the watcher, and waits until its end was taken. It may be called more
// than once.
func (f *Follower[T]) Stop() {
	f.watcher.Stop()
	<-f.done
}

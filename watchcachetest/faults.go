package watchcachetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/watchcache/watchcache"
)

// ErrScripted is the error of a scripted fault that was given none.
var ErrScripted = errors.New("watchcachetest: scripted fault")

// faults is what a Source is to do wrong.
type faults struct {
	lists    failing
	watches  failing
	progress failing
	halfway  error // of the next listing, after that many items
	items    int
	repeat   string // a key that the next listing repeats
	held     int
	delay    time.Duration
	clock    watchcache.Clock
}

// failing is the next n calls that fail.
type failing struct {
	n   int
	err error
}

// take returns the error of a call that is to fail.
func (f *failing) take() error {
	if f.n == 0 {
		return nil
	}
	f.n--
	return f.err
}

func scripted(err error) error {
	if err == nil {
		return ErrScripted
	}
	return err
}

// FailLists makes the next n calls of List, or sequences of Stream, fail before
// their first item. A nil err is [ErrScripted]; n = 0 undoes it.
func (s *Source[T]) FailLists(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.lists = failing{n, scripted(err)}
}

// FailWatches makes the next n sequences of Watch fail before their first event.
// A nil err is [ErrScripted]; n = 0 undoes it.
func (s *Source[T]) FailWatches(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.watches = failing{n, scripted(err)}
}

// FailProgressRequests makes the next n progress requests fail. A nil err is
// [ErrScripted]; n = 0 undoes it.
func (s *Source[T]) FailProgressRequests(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.progress = failing{n, scripted(err)}
}

// FailListing makes the next listing, of List or of Stream, fail after that many
// items, or after all that there are. A nil err is [ErrScripted].
func (s *Source[T]) FailListing(items int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.items, s.faults.halfway = items, scripted(err)
}

// RepeatKey makes the next listing, of List or of Stream, list a key a second
// time, at its end. It panics if there is no such key.
func (s *Source[T]) RepeatKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.items[key]; !ok {
		panic(fmt.Sprintf("watchcachetest: Source.RepeatKey: there is no key %q", key))
	}
	s.faults.repeat = key
}

// Cut ends all open streams at once, with an error or, if that is nil, without.
// What they had not told yet is told to who resumes.
func (s *Source[T]) Cut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut(err)
}

func (s *Source[T]) cut(err error) {
	for _, st := range s.streams {
		st.end(err)
	}
	s.wake()
}

// Inject sends events to the open streams, or to the next one if none is open,
// as they are: a commit that goes back in revision, an item where there must be
// none. The store and its history do not change.
func (s *Source[T]) Inject(events ...watchcache.SourceEvent[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		s.injected = append(s.injected, events...)
		return
	}
	for _, st := range s.streams {
		st.inject(s.at, events)
	}
	s.wake()
}

// Hold lets nothing out from now on: calls of List do not return, and streams
// tell nothing. The function that it returns undoes it, and may be called more
// than once. Several holds count. A context that ends, and Cut, end the wait.
func (s *Source[T]) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.held++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults.held--
		s.wake()
	})
}

// Delay makes every listing, and every event of a stream, come so much later, by
// that clock; nil is the real one. 0 undoes it.
func (s *Source[T]) Delay(clock watchcache.Clock, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.clock, s.faults.delay = clock, d
}

// later returns a channel that receives after the delay; nil for none. The caller
// holds mu.
func (f *faults) later() <-chan time.Time {
	switch {
	case f.delay <= 0:
		return nil
	case f.clock == nil:
		return time.After(f.delay)
	}
	return f.clock.After(f.delay)
}

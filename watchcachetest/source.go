package watchcachetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/watchcache/watchcache"
)

// Source is a scripted [watchcache.Source]: a store that a test changes, and that
// a cache's Run follows. It serves List and Watch; [StreamingSource],
// [RequestingSource] and [StreamingRequestingSource] offer the optional
// interfaces as well.
//
// It starts no goroutine and never sleeps: whoever calls List or ranges over a
// stream waits there, until there is something to tell or its context ends. So
// it works inside a testing/synctest bubble. All methods may be called
// concurrently. Make one with [NewSource].
type Source[T any] struct {
	mu        sync.Mutex
	changed   chan struct{} // closed at the next change; nil while nobody waits
	at        watchcache.Position
	items     map[string]watchcache.Item[T]
	history   []told[T]
	compacted watchcache.Position // history begins after this
	streams   []*stream[T]        // that are open
	injected  []watchcache.SourceEvent[T]
	onRequest bool // progress is told on request only
	anew      bool // revisions were numbered anew: atLeast means nothing
	faults    faults
	calls     Calls
}

// told is one event of a source's history.
type told[T any] struct {
	at    watchcache.Position
	event watchcache.SourceEvent[T]
}

// NewSource returns a source that is empty, at revision 0 of that epoch.
func NewSource[T any](epoch string) *Source[T] {
	at := watchcache.Position{Epoch: epoch}
	return &Source[T]{at: at, compacted: at, items: make(map[string]watchcache.Item[T])}
}

// Put gives a key an object at the next revision, which it returns.
func (s *Source[T]) Put(key string, object T) (revision uint64) {
	return s.Commit(watchcache.Commit[T]{Changes: []watchcache.Change[T]{{Key: key, Object: object}}})
}

// Delete removes a key at the next revision, which it returns. If there is no such
// key, streams get a commit that changes nothing.
func (s *Source[T]) Delete(key string) (revision uint64) {
	return s.Commit(watchcache.Commit[T]{Changes: []watchcache.Change[T]{{Key: key, Delete: true}}})
}

// Commit makes several changes at one revision, and returns it: the commit's own,
// with any gap before it, or the next one if that is 0. A commit that Continues
// goes to the current revision, or names it.
//
// A revision that does not follow is a fault of the test: Commit panics. To send
// one to a cache, use [Source.Inject].
func (s *Source[T]) Commit(commit watchcache.Commit[T]) (revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.at
	switch {
	case commit.Continues && (commit.Revision == 0 || commit.Revision == at.Revision):
		at.Part++
	case !commit.Continues && commit.Revision == 0:
		at.Revision, at.Part = at.Revision+1, 0
	case !commit.Continues && commit.Revision > at.Revision:
		at.Revision, at.Part = commit.Revision, 0
	default:
		panic(fmt.Sprintf("watchcachetest: Source.Commit: revision %d does not follow %v; Inject sends it without checks", commit.Revision, s.at))
	}
	commit.Revision = at.Revision
	commit.Changes = slices.Clone(commit.Changes)
	for _, change := range commit.Changes {
		if change.Delete {
			delete(s.items, change.Key)
		} else {
			s.items[change.Key] = watchcache.Item[T]{Key: change.Key, Object: change.Object, Revision: at.Revision}
		}
	}
	s.at = at
	s.tell(at, watchcache.CommitEvent(commit))
	return at.Revision
}

// Progress moves the source to a revision at which nothing changed. Streams are
// told at once, unless [Source.ProgressOnRequest] is set. It panics on a revision
// below the current one.
func (s *Source[T]) Progress(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision < s.at.Revision {
		panic(fmt.Sprintf("watchcachetest: Source.Progress: revision %d is below %v; Inject sends it without checks", revision, s.at))
	}
	if revision > s.at.Revision {
		s.at.Revision, s.at.Part = revision, 0
	}
	if !s.onRequest {
		s.tell(s.at, watchcache.ProgressEvent[T](revision))
	}
}

// ProgressOnRequest makes streams silent about progress from now on, until they
// are asked through [watchcache.ProgressRequester]; false undoes it.
func (s *Source[T]) ProgressOnRequest(only bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = only
}

// Compact forgets history up to a revision: a Watch after a position before it,
// and an open stream that still has to tell of it, ends with an error that is
// watchcache.ErrExpired. It panics on a revision above the current one. A
// revision that is compacted already is left as it is.
func (s *Source[T]) Compact(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.at.Revision {
		panic(fmt.Sprintf("watchcachetest: Source.Compact: revision %d is beyond %v", revision, s.at))
	}
	if revision < s.compacted.Revision {
		return
	}
	s.compacted = watchcache.Position{Epoch: s.at.Epoch, Revision: revision}
	if revision == s.at.Revision {
		s.compacted = s.at
	}
	kept := s.history[:0:0]
	for _, h := range s.history {
		if h.at.Revision > revision {
			kept = append(kept, h)
		} else if h.at.Revision == revision {
			s.compacted = h.at
		}
	}
	s.history = kept
	for _, st := range s.streams {
		if !st.over && len(st.queue) > 0 && st.queue[0].at.Revision <= revision {
			st.end(&watchcache.ExpiredError{Requested: st.after, Oldest: s.compacted})
		}
	}
	s.wake()
}

// Restart is what a restored backup or a new server looks like: the source has
// exactly these items, at that position, and no history. Open streams end with
// [ErrScripted]. A Watch after a position of another epoch, before the new
// position, or beyond it, is expired.
//
// Where the epoch changes or the revision goes back, the revisions that List and
// Stream are asked for are of a numbering that is gone: they are not waited for
// any more. Items with Revision 0 get the position's.
func (s *Source[T]) Restart(at watchcache.Position, items ...watchcache.Item[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Epoch != s.at.Epoch || at.Revision < s.at.Revision {
		s.anew = true
	}
	s.at, s.compacted, s.history = at, at, nil
	clear(s.items)
	for _, item := range items {
		if item.Revision == 0 {
			item.Revision = at.Revision
		}
		s.items[item.Key] = item
	}
	s.cut(fmt.Errorf("%w: the source restarted", ErrScripted))
}

// Position returns the source's current position.
func (s *Source[T]) Position() watchcache.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Items returns the current state, sorted by key.
func (s *Source[T]) Items() []watchcache.Item[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted()
}

func (s *Source[T]) sorted() []watchcache.Item[T] {
	return slices.SortedFunc(maps.Values(s.items), func(a, b watchcache.Item[T]) int {
		return strings.Compare(a.Key, b.Key)
	})
}

// Calls is what a [Source] was asked for.
type Calls struct {
	Lists            int // calls of List
	Streams          int // times that a sequence of Stream was ranged over
	Watches          int // times that a sequence of Watch was ranged over
	ProgressRequests int
	Open             int                   // streams of Stream and Watch that are open now
	AtLeast          []uint64              // with what List and Stream were called, in order
	After            []watchcache.Position // with what Watch was called, in order
}

// Calls returns what the source was asked for so far.
func (s *Source[T]) Calls() Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	calls.Open = len(s.streams)
	calls.AtLeast = slices.Clone(calls.AtLeast)
	calls.After = slices.Clone(calls.After)
	return calls
}

// tell sends an event to the open streams and keeps it for later ones. The caller
// holds mu.
func (s *Source[T]) tell(at watchcache.Position, event watchcache.SourceEvent[T]) {
	s.history = append(s.history, told[T]{at, event})
	for _, st := range s.streams {
		st.queue = append(st.queue, told[T]{at, event})
	}
	s.wake()
}

// wake lets everybody who waits look again. The caller holds mu.
func (s *Source[T]) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

package watchcachetest

import (
	"fmt"
	"slices"

	"github.com/watchcache/watchcache"
)

// Watched is one watcher as a [Checker] knows it: what its consumer took, in
// order. [Checker.Watcher] makes it. [Watched.Follow] tells it everything; a
// consumer of another kind tells it by hand.
//
// Its methods may be called concurrently with everything else, and are to be
// called in the order in which the things that they tell happened.
type Watched[T any] struct {
	check   *Checker[T]
	records []record[T] // not compared yet
	replay  replay[T]
	failed  *Violation
}

// record is one thing that a watcher's consumer told.
type record[T any] struct {
	kind  recordKind
	event watchcache.Event[T]
	at    watchcache.Position
	ok    bool
	err   error
	eras  int // that there were when it was told
}

type recordKind uint8

const (
	recordStart recordKind = iota
	recordResumed
	recordEvent
	recordPosition
	recordCaughtUp
	recordRefused
	recordEnd
)

// Coalesced tells that the watcher has WatchOptions.Coalesce. It returns w, and
// is to be called before anything else.
func (w *Watched[T]) Coalesced() *Watched[T] {
	w.check.mu.Lock()
	defer w.check.mu.Unlock()
	w.replay.coalesce = true
	return w
}

// Took tells that an event was taken.
func (w *Watched[T]) Took(event watchcache.Event[T]) {
	w.add(record[T]{kind: recordEvent, event: event})
}

// Position tells what Watcher.Position returned, after everything that was told
// before was taken, and nothing else. Leave it out where events are taken ahead
// of the consumer, as with a channel.
func (w *Watched[T]) Position(at watchcache.Position, ok bool) {
	w.add(record[T]{kind: recordPosition, at: at, ok: ok})
}

// CaughtUp tells that there was nothing left to take while the cache was at that
// position: what was not taken up to it is missing.
func (w *Watched[T]) CaughtUp(at watchcache.Position) {
	w.add(record[T]{kind: recordCaughtUp, at: at})
}

// Ended tells with which error the stream ended, after everything before it was
// told. A nil error is a violation.
func (w *Watched[T]) Ended(err error) { w.add(record[T]{kind: recordEnd, err: err}) }

// Resumed tells that the consumer goes on with a new watcher that starts after a
// position; the zero Position is for one that starts with the state.
func (w *Watched[T]) Resumed(after watchcache.Position) {
	w.add(record[T]{kind: recordResumed, at: after})
}

// Refused tells that Watch refused to start after a position, with that error.
func (w *Watched[T]) Refused(after watchcache.Position, err error) {
	w.add(record[T]{kind: recordRefused, at: after, err: err})
}

func (w *Watched[T]) add(r record[T]) {
	w.check.mu.Lock()
	defer w.check.mu.Unlock()
	w.tell(r)
}

// tell is add for a caller that holds the checker's mu.
func (w *Watched[T]) tell(r record[T]) {
	r.eras = len(w.check.timeline.eras)
	w.records = append(w.records, r)
}

// run compares what was told and not compared yet. The caller holds the checker's
// mu.
func (w *Watched[T]) run() *Violation {
	if w.failed != nil {
		return w.failed
	}
	for n, r := range w.records {
		wrong := w.replay.step(r, w.records[n+1:])
		if wrong != nil {
			wrong.Watcher = w.replay.name
			for _, earlier := range w.replay.last {
				wrong.Last = append(wrong.Last, earlier.String())
			}
			w.records = slices.Delete(w.records, 0, n)
			if !wrong.heals {
				w.failed, w.records = wrong, nil
			}
			return wrong
		}
		w.replay.remember(r)
	}
	w.records = nil
	return nil
}

func (r record[T]) String() string {
	switch r.kind {
	case recordStart, recordResumed:
		verb := map[recordKind]string{recordStart: "started", recordResumed: "resumed"}[r.kind]
		if r.at.IsZero() {
			return verb + " with the state"
		}
		return fmt.Sprintf("%s after %v", verb, r.at)
	case recordPosition:
		if !r.ok {
			return "no position"
		}
		return fmt.Sprintf("position %v", r.at)
	case recordCaughtUp:
		return fmt.Sprintf("nothing left to take at %v", r.at)
	case recordRefused:
		return fmt.Sprintf("refused to start after %v: %v", r.at, r.err)
	case recordEnd:
		return fmt.Sprintf("ended: %v", r.err)
	}
	return describe(r.event)
}

// describe returns an event in a few words, without its objects.
func describe[T any](ev watchcache.Event[T]) string {
	text := ev.Type.String()
	if ev.Key != "" {
		text += fmt.Sprintf(" %q", ev.Key)
	}
	text += fmt.Sprintf(" at %d", ev.Revision)
	if ev.Cause != 0 {
		text += ", " + ev.Cause.String()
	}
	if ev.Initial {
		text += ", initial"
	}
	if ev.More {
		text += ", more to follow"
	}
	return text
}

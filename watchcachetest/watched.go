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
	name    string
	records []record[T] // not compared yet
	last    []record[T] // the last that were
	replays []replay[T] // where it may be, the likeliest first; at least one
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
	w.replays[0].coalesce = true
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
		wrong := w.step(r, w.records[n+1:])
		if wrong != nil {
			wrong.Watcher = w.name
			for _, earlier := range w.last {
				wrong.Last = append(wrong.Last, earlier.String())
			}
			w.records = slices.Delete(w.records, 0, n)
			if !wrong.heals {
				w.failed, w.records = wrong, nil
			}
			return wrong
		}
		w.remember(r)
	}
	w.records = nil
	return nil
}

// broken reports whether the watcher has broken the contract in a way that nothing
// that is told later can mend.
func (w *Watched[T]) broken() bool {
	w.check.mu.Lock()
	defer w.check.mu.Unlock()
	w.run()
	return w.failed != nil
}

// step has each replay take the next record. One that cannot is none any more, if
// another one can, or may when the checker is told more.
func (w *Watched[T]) step(rec record[T], following []record[T]) *Violation {
	if r := &w.replays[0]; len(w.replays) == 1 {
		r.alone = true
		wrong := r.step(rec, following)
		if others := r.others; others != nil {
			r.others = nil
			w.replays = distinct(append(w.replays, others...))
		}
		return wrong
	}
	var possible, waiting []replay[T]
	var wrong *Violation
	for _, r := range w.replays {
		r.alone, r.others = false, nil
		v := r.step(rec, following)
		switch {
		case v == nil:
			possible = append(append(possible, r), r.others...)
		case v.heals:
			waiting = append(waiting, r)
		}
		if v != nil && (wrong == nil || v.heals && !wrong.heals) {
			wrong = v
		}
	}
	switch {
	case len(possible) > 0:
		w.replays = distinct(possible)
		return nil
	case len(waiting) > 0:
		w.replays = waiting
	}
	return wrong
}

// distinct leaves out replays that expect what one before them does.
func distinct[T any](all []replay[T]) []replay[T] {
	kept := all[:1]
	for _, r := range all[1:] {
		n := slices.IndexFunc(kept, func(other replay[T]) bool { return r.same(&other) })
		switch {
		case n < 0:
			kept = append(kept, r)
		case before(r.floor, kept[n].floor):
			kept[n].floor = r.floor
		}
	}
	return kept
}

// mostLast is how much a violation tells of what was before.
const mostLast = 6

func (w *Watched[T]) remember(rec record[T]) {
	if rec.kind == recordCaughtUp {
		return
	}
	if len(w.last) == mostLast {
		w.last = append(w.last[:0:0], w.last[1:]...)
	}
	w.last = append(w.last, rec) // its text is made when it is wanted: an object may be large
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

package watchcachetest

import (
	"fmt"
	"reflect"

	"github.com/watchcache/watchcache"
)

// stray says what is wrong with an event that is not the one that had to come
// next. d is how it differs from that one, if there is one.
func (r *replay[T]) stray(ev watchcache.Event[T], d *difference, following []record[T], wrong wrongFunc) *Violation {
	expected := r.expectation()
	if d != nil && d.field != "Revision" && d.field != "Key" {
		contract := 4
		if d.field == "More" {
			contract = 2
		}
		// Another change of the same key in the same commit is not this event
		// with a wrong field, but that one too early.
		if at, nth, ok := r.find(ev, true); !ok || at == r.next && nth == r.taken {
			v := wrong(contract, fmt.Sprintf("%s of %s is wrong", d.field, describe(ev)), fmt.Sprintf("%s %s", d.field, d.expected))
			v.Got = fmt.Sprintf("%s %s", d.field, d.got)
			return v
		}
	}
	if at, nth, ok := r.find(ev, true); ok {
		switch {
		case !before(r.floor, r.era.commits[at].at):
			return wrong(1, fmt.Sprintf("an event at or before %v, where it started", r.floor), expected)
		case at < r.next || at == r.next && nth < r.taken:
			return wrong(1, "an event was taken a second time", expected)
		}
		for _, rec := range following {
			if events := r.ahead(); rec.kind == recordEvent && sameEvent(events[r.taken], rec.event) {
				return wrong(1, "events came out of order", expected)
			}
		}
		return wrong(1, "an event was skipped", expected)
	}
	if _, _, ok := r.find(ev, false); ok {
		return wrong(4, "an event that the watcher does not select", expected)
	}
	for _, e := range r.timeline.eras {
		if e != r.era && e.has(ev) {
			return wrong(13, fmt.Sprintf("an event from after the state was listed anew at %v", e.base), "to end with ErrExpired")
		}
	}
	v := wrong(1, "an event that nobody wrote", expected)
	v.heals = ev.Revision > r.era.head.Revision
	return v
}

// find returns in which commit of the era an event is, and which of what the
// watcher selects of it; or, without selected, which of all.
func (r *replay[T]) find(ev watchcache.Event[T], selected bool) (at, nth int, ok bool) {
	for at, w := range r.era.commits {
		if w.at.Revision != ev.Revision {
			continue
		}
		events := w.events
		if selected {
			events = w.seen(r.selects)
		}
		for nth, other := range events {
			if sameEvent(other, ev) && (!selected || other.Cause == ev.Cause) && r.timeline.equal(other.Object, ev.Object) {
				return at, nth, true
			}
		}
	}
	return 0, 0, false
}

func (e *era[T]) has(ev watchcache.Event[T]) bool {
	for _, w := range e.commits {
		for _, other := range w.events {
			if sameEvent(other, ev) {
				return true
			}
		}
	}
	return false
}

func sameEvent[T any](a, b watchcache.Event[T]) bool {
	return a.Revision == b.Revision && a.Key == b.Key && a.Type == b.Type
}

func isZero[T any](value T) bool { return reflect.ValueOf(&value).Elem().IsZero() }

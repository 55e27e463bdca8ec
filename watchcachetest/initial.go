package watchcachetest

import (
	"fmt"
	"slices"

	"github.com/watchcache/watchcache"
)

// start is a new stream.
func (r *replay[T]) start(rec record[T], wrong wrongFunc) *Violation {
	var in *era[T]
	if !rec.at.IsZero() {
		if in = r.timeline.eraOf(rec.at); in == nil {
			v := wrong(6, "it started after a position that no stream can start after", "to be refused with ErrExpired")
			v.heals = true
			return v
		}
		r.low, r.floor, r.next = rec.at, rec.at, in.after(rec.at)
	}
	r.initial, r.era, r.eras, r.ended = in == nil, in, rec.eras, nil
	r.items, r.window, r.nexts, r.taken, r.begun = nil, nil, nil, 0, nil
	return nil
}

// reset begins an initial phase on a stream that had one, or was streaming.
func (r *replay[T]) reset(ev watchcache.Event[T], wrong wrongFunc) *Violation {
	if r.era != nil && ev.Revision < r.low.Revision {
		return wrong(14, "a resync went back", fmt.Sprintf("Reset at %d or later", r.low.Revision))
	}
	if len(r.timeline.at(ev.Revision, r.era)) == 0 {
		v := wrong(3, "a Reset at a revision that nobody wrote", r.timeline.reach())
		v.heals = true
		return v
	}
	r.initial, r.items, r.window, r.nexts, r.taken, r.begun = true, nil, nil, nil, 0, &ev.Revision
	return nil
}

// item is an event in an initial phase.
func (r *replay[T]) item(ev watchcache.Event[T], wrong wrongFunc) *Violation {
	n := len(r.items)
	switch {
	case !ev.Initial:
		return wrong(3, "a change before Synced", "further initial events, or Synced")
	case ev.Type != watchcache.Added:
		return wrong(3, "an initial event that is not Added", "Added")
	case n > 0 && ev.Key <= r.items[n-1].Key:
		return wrong(3, "initial events are not sorted by key, each once", fmt.Sprintf("a key above %q", r.items[n-1].Key))
	case !r.selects(ev.Key, ev.Object):
		return wrong(4, "an initial event that the watcher does not select", "selected objects only")
	}
	r.items = append(r.items, ev)
	return nil
}

// candidates returns the eras that an initial phase may be of, the likeliest first:
// that in which the watcher began, or, if another began just then, a later one. Where
// no position is told, as with a channel, states of several may look the same.
func (r *replay[T]) candidates() []*era[T] {
	if r.era != nil {
		return []*era[T]{r.era}
	}
	var all []*era[T]
	if r.eras > 0 {
		all = append(all, r.timeline.eras[r.eras-1])
	}
	for _, e := range slices.Backward(r.timeline.eras) {
		if len(all) == 0 || e != all[0] {
			all = append(all, e)
		}
	}
	return all
}

// synced ends an initial phase: the initial events must be the state there.
func (r *replay[T]) synced(ev watchcache.Event[T], following []record[T], wrong wrongFunc) *Violation {
	if !r.initial {
		return wrong(3, "Synced outside of an initial phase: there is exactly one in each", r.expectation())
	}
	if r.begun != nil && ev.Revision != *r.begun { // which has not gone back
		return wrong(3, "Synced is of another revision than its Reset", fmt.Sprintf("Synced at %d", *r.begun))
	}
	// A position tells more than its Synced: also that the checker was not told of it yet.
	told := watchcache.Position{}
	if len(following) > 0 && following[0].kind == recordPosition && following[0].ok && following[0].at.Revision == ev.Revision {
		told = following[0].at
	}
	var mismatch *Violation
	var found []replay[T]
	for _, e := range r.candidates() {
		for _, at := range e.positions(ev.Revision) {
			if !told.IsZero() && at != told {
				continue
			}
			if e.inHole(at) { // unless it is another era's
				if mismatch == nil {
					mismatch = wrong(13, "a state strictly inside of the hole that a relist left", "a revision that is known")
				}
				continue
			}
			expected, got := r.timeline.compareState(r.items, e.stateAt(at), r.selects)
			if expected == "" {
				place := *r
				place.initial, place.items, place.era, place.begun = false, nil, e, nil
				place.low, place.floor, place.next = at, at, e.after(at)
				found = append(found, place)
			} else if mismatch == nil {
				mismatch = wrong(3, fmt.Sprintf("the initial events are not the selected state at %v", at), expected)
				mismatch.Got = got
			}
		}
	}
	switch {
	case len(found) > 0:
		*r = found[0]
		r.others = found[1:]
		return nil
	case mismatch != nil:
		return mismatch
	}
	v := wrong(3, "Synced at a revision that nobody wrote", r.timeline.reach())
	v.heals = true
	return v
}

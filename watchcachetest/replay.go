package watchcachetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/watchcache/watchcache"
)

// replay follows one watcher through the timeline: at each step it knows what has
// to come next.
type replay[T any] struct {
	timeline *timeline[T]
	name     string
	selects  func(key string, object T) bool
	coalesce bool

	initial bool                  // in an initial phase
	items   []watchcache.Event[T] // taken in it
	era     *era[T]               // nil: not known before Synced
	eras    int                   // that there were when it started
	floor   watchcache.Position   // where it started, or was synced
	low     watchcache.Position   // everything up to it was taken whole
	next    int                   // era.commits[next] is the first not taken whole
	taken   int                   // of what it selects of that one
	window  []watchcache.Event[T] // coalescing: taken, with more to follow
	nexts   []int                 // coalescing: what next may be, if not only that; sorted
	ended   error
	last    []record[T]

	seen   []watchcache.Event[T] // of era.commits[seenAt]
	seenIn *era[T]
	seenAt int
}

// mostLast is how much a violation tells of what was before.
const mostLast = 6

func (r *replay[T]) remember(rec record[T]) {
	if rec.kind == recordCaughtUp {
		return
	}
	if len(r.last) == mostLast {
		r.last = append(r.last[:0:0], r.last[1:]...)
	}
	r.last = append(r.last, rec) // its text is made when it is wanted: an object may be large
}

// step takes the next record. It returns what is wrong with it; what heals has
// changed nothing. following is what was told after it, which only serves to say
// better what is wrong.
func (r *replay[T]) step(rec record[T], following []record[T]) *Violation {
	wrong := func(contract int, why, expected string) *Violation {
		return &Violation{Contract: contract, Why: why, Expected: expected, Got: rec.String()}
	}
	if r.era != nil { // what was not written yet when a client that is ahead began
		r.next = max(r.next, r.era.after(r.low))
	}
	switch rec.kind {
	case recordStart, recordResumed:
		return r.start(rec, wrong)
	case recordPosition:
		return r.position(rec, wrong)
	case recordCaughtUp:
		return r.caughtUp(rec, wrong)
	case recordRefused:
		return r.refused(rec, wrong)
	case recordEnd:
		return r.end(rec, wrong)
	}
	ev := rec.event
	switch {
	case r.ended != nil:
		return wrong(5, "an event after the end", "nothing")
	case ev.Type == watchcache.Reset:
		r.initial, r.items, r.window, r.nexts, r.taken = true, nil, nil, nil, 0
		return nil
	case ev.Type == watchcache.Synced:
		return r.synced(ev, following, wrong)
	case ev.Type == watchcache.Bookmark:
		return r.bookmark(ev, wrong)
	case ev.Type != watchcache.Added && ev.Type != watchcache.Modified && ev.Type != watchcache.Deleted:
		return wrong(1, "an event of no type", "an event, or a marker")
	case r.initial:
		return r.item(ev, wrong)
	case ev.Initial:
		return wrong(3, "an initial event outside of an initial phase", r.expectation())
	case r.coalesce:
		return r.joined(ev, wrong)
	}
	return r.change(ev, following, wrong)
}

type wrongFunc func(contract int, why, expected string) *Violation

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
	r.items, r.window, r.nexts, r.taken = nil, nil, nil, 0
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

// candidates returns the eras that an initial phase may be of, the likeliest first.
// A stream has one era, but where no position is told, as with a channel, states
// of several may look the same: then it is that in which the watcher began, or, if
// another began just then, a later one.
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
	if r.era != nil && ev.Revision < r.low.Revision {
		return wrong(14, "a resync went back", fmt.Sprintf("Synced at %d or later", r.low.Revision))
	}
	told := watchcache.Position{}
	if len(following) > 0 && following[0].kind == recordPosition && following[0].ok && following[0].at.Revision == ev.Revision {
		told = following[0].at
	}
	var mismatch *Violation
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
				r.initial, r.items, r.era = false, nil, e
				r.low, r.floor, r.next = at, at, e.after(at)
				return nil
			}
			if mismatch == nil {
				mismatch = wrong(3, fmt.Sprintf("the initial events are not the selected state at %v", at), expected)
				mismatch.Got = got
			}
		}
	}
	if mismatch != nil {
		return mismatch
	}
	v := wrong(3, "Synced at a revision that nobody wrote", r.timeline.reach())
	v.heals = true
	return v
}

// ahead moves next to the first commit that the watcher still has before it, and
// returns what it selects of that; nothing, if there is none.
func (r *replay[T]) ahead() []watchcache.Event[T] {
	for ; r.next < len(r.era.commits); r.next++ {
		if r.seenIn != r.era || r.seenAt != r.next {
			r.seen, r.seenIn, r.seenAt = r.era.commits[r.next].seen(r.selects), r.era, r.next
		}
		if len(r.seen) > 0 {
			return r.seen
		}
	}
	return nil
}

// expectation says what has to come next.
func (r *replay[T]) expectation() string {
	switch {
	case r.initial:
		return "initial events, then Synced"
	case r.coalesce:
		return "the changes after " + r.low.String() + ", joined by key"
	}
	if events := r.ahead(); events != nil {
		return describe(events[r.taken])
	}
	return fmt.Sprintf("no change: everything up to %v, the last that the checker was told of, was taken", r.era.head)
}

// change is an event while streaming.
func (r *replay[T]) change(ev watchcache.Event[T], following []record[T], wrong wrongFunc) *Violation {
	events := r.ahead()
	if events == nil {
		return r.stray(ev, nil, following, wrong)
	}
	want, w := events[r.taken], r.era.commits[r.next]
	if field, expected, got := r.differs(want, ev); field != "" {
		return r.stray(ev, &difference{field, expected, got}, following, wrong)
	}
	if w.relist && before(w.hole, r.low) && before(r.low, w.at) {
		return wrong(13, fmt.Sprintf("the difference of a relist, although it was at %v, strictly inside of the hole", r.low), "to end with ErrExpired")
	}
	if r.taken++; r.taken == len(events) {
		r.low, r.next, r.taken = w.at, r.next+1, 0
	}
	return nil
}

// bookmark must find everything up to it taken.
func (r *replay[T]) bookmark(ev watchcache.Event[T], wrong wrongFunc) *Violation {
	if r.initial {
		return wrong(14, "a bookmark before the state is known", r.expectation())
	}
	places := r.era.positions(ev.Revision)
	switch {
	case ev.Revision < r.low.Revision:
		return wrong(14, "a bookmark went back", fmt.Sprintf("a bookmark at %d or later", r.low.Revision))
	case len(places) == 0:
		v := wrong(14, "a bookmark at a revision that nobody wrote", r.timeline.reach())
		v.heals = true
		return v
	case !before(r.floor, places[0]):
		return wrong(14, "a bookmark that says nothing new", fmt.Sprintf("bookmarks beyond %v, where it started", r.floor))
	case r.era.inHole(places[0]):
		return wrong(13, "a bookmark strictly inside of the hole that a relist left", "a revision that is known")
	}
	// It does not tell which part of its revision it means. Where more parts are
	// yet to come, it is true if it is for one of them.
	early := ""
	for _, at := range slices.Backward(places) {
		if before(at, r.low) {
			continue
		}
		want, ok := r.untaken(at)
		if !ok {
			r.pass(at)
			return nil
		}
		early = cmp.Or(early, want)
	}
	return wrong(14, "a bookmark before everything up to it was taken", early)
}

// position must be what was taken whole.
func (r *replay[T]) position(rec record[T], wrong wrongFunc) *Violation {
	switch {
	case r.initial && !rec.ok:
		return nil
	case r.initial:
		return wrong(3, "a position before Synced", "no position")
	case !rec.ok:
		return wrong(3, "no position after Synced", "a position from "+r.low.String()+" on")
	case rec.at == r.low:
		r.nexts = nil
		return nil
	case rec.at.Epoch != r.low.Epoch:
		return wrong(13, "a position of another epoch", "one of epoch "+r.low.Epoch)
	case before(rec.at, r.low):
		return wrong(2, "a position behind what was taken whole: to resume there repeats", r.low.String()+" or later")
	case r.era.inHole(rec.at):
		return wrong(13, "a position strictly inside of the hole that a relist left", "a position that is known")
	}
	if want, ok := r.untaken(rec.at); ok {
		return wrong(2, "a position beyond what was taken whole: to resume there skips", "not beyond "+want)
	}
	if before(r.era.head, rec.at) {
		v := wrong(2, "a position that nobody wrote", r.timeline.reach())
		v.heals = true
		return v
	}
	r.pass(rec.at)
	return nil
}

// untaken returns the first event up to a position that was not taken.
func (r *replay[T]) untaken(at watchcache.Position) (string, bool) {
	if r.coalesce {
		return r.unjoined(at)
	}
	if events := r.ahead(); events != nil && !before(at, r.era.commits[r.next].at) {
		return describe(events[r.taken]), true
	}
	return "", false
}

// pass notes that everything up to a position was taken.
func (r *replay[T]) pass(at watchcache.Position) {
	r.low, r.next, r.nexts = at, max(r.next, r.era.after(at)), nil
}

// caughtUp must find everything taken.
func (r *replay[T]) caughtUp(rec record[T], wrong wrongFunc) *Violation {
	in := r.timeline.eraOf(rec.at)
	if in == nil || before(in.head, rec.at) {
		v := wrong(1, "it caught up with a position that nobody wrote", r.timeline.reach())
		v.heals = true
		return v
	}
	switch {
	case r.ended != nil && r.era != in:
		return nil
	case r.initial:
		return wrong(3, "Synced is missing", r.expectation())
	case r.era != in:
		return wrong(13, fmt.Sprintf("it goes on, although the state was listed anew at %v", in.base), "to end with ErrExpired")
	}
	if want, ok := r.untaken(rec.at); ok {
		return wrong(1, "an event never came", want)
	}
	return nil
}

// eraOf returns the newest era that a stream after that position may belong to.
func (t *timeline[T]) eraOf(at watchcache.Position) *era[T] {
	for i := len(t.eras) - 1; i >= 0; i-- {
		if e := t.eras[i]; e.base.Epoch == at.Epoch && !before(at, e.base) {
			return e
		}
	}
	return nil
}

// difference is a field in which an event is not what it had to be.
type difference struct{ field, expected, got string }

func (r *replay[T]) differs(want, got watchcache.Event[T]) (field, expected, have string) {
	text := func(value any) string { return fmt.Sprintf("%+v", value) }
	for _, f := range []struct {
		name      string
		equal     bool
		want, got any
	}{
		{"Revision", want.Revision == got.Revision, want.Revision, got.Revision},
		{"Key", want.Key == got.Key, want.Key, got.Key},
		{"Type", want.Type == got.Type, want.Type, got.Type},
		{"Cause", want.Cause == got.Cause, want.Cause, got.Cause},
		{"Object", r.timeline.equal(want.Object, got.Object), want.Object, got.Object},
		{"Prev", want.Type == watchcache.Added && isZero(got.Prev) || want.Type != watchcache.Added && r.timeline.equal(want.Prev, got.Prev), want.Prev, got.Prev},
		{"More", want.More == got.More, want.More, got.More},
	} {
		if !f.equal {
			return f.name, cmp.Or(text(f.want), "none"), cmp.Or(text(f.got), "none")
		}
	}
	return "", "", ""
}

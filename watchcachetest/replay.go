package watchcachetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/watchcache/watchcache"
)

// replay follows one watcher through the timeline: at each step it knows what has
// to come next. Where a stream does not tell which of several places it is at, as a
// channel does not tell the part of a revision, there is a replay for each.
type replay[T any] struct {
	timeline *timeline[T]
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
	begun   *uint64               // the revision of the Reset that began the initial phase, if one did
	ended   error
	others  []replay[T] // where the last step may have led as well
	alone   bool        // no other replay is possible
	tells   bool        // positions are told

	seen   []watchcache.Event[T] // of era.commits[seenAt]
	seenIn *era[T]
	seenAt int
}

// same reports whether two replays expect the same from now on.
func (r *replay[T]) same(other *replay[T]) bool {
	return r.era == other.era && r.low == other.low && r.next == other.next && r.taken == other.taken &&
		r.initial == other.initial && len(r.items) == len(other.items) && len(r.window) == len(other.window) &&
		slices.Equal(r.nexts, other.nexts) && (r.ended == nil) == (other.ended == nil)
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
	if r.ended != nil {
		return wrong(5, "an event after the end", "nothing")
	}
	if v := r.extra(ev, wrong); v != nil {
		return v
	}
	switch {
	case ev.Type == watchcache.Reset:
		return r.reset(ev, wrong)
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

// extra finds what an event of its type does not have.
func (r *replay[T]) extra(ev watchcache.Event[T], wrong wrongFunc) *Violation {
	marker := ev.Type == watchcache.Synced || ev.Type == watchcache.Bookmark || ev.Type == watchcache.Reset
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Key", marker && ev.Key != ""},
		{"Object", marker && !isZero(ev.Object)},
		{"Prev", (marker || ev.Initial) && !isZero(ev.Prev)},
		{"Cause", (marker || ev.Initial) && ev.Cause != 0},
		{"More", (marker || ev.Initial) && ev.More},
		{"Initial", marker && ev.Initial},
	} {
		if !field.set {
			continue
		}
		if marker {
			return wrong(3, fmt.Sprintf("a marker with %s set", field.name), "a marker, which has a revision and nothing else")
		}
		return wrong(3, fmt.Sprintf("an initial event with %s set", field.name), "key, object and revision of an item")
	}
	return nil
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
	if v := r.timed(ev, wrong); v != nil {
		return v
	}
	if w.relist && before(w.hole, r.low) && before(r.low, w.at) {
		return wrong(13, fmt.Sprintf("the difference of a relist, although it was at %v, strictly inside of the hole", r.low), "to end with ErrExpired")
	}
	if r.taken++; r.taken == len(events) {
		r.low, r.next, r.taken = w.at, r.next+1, 0
	}
	return nil
}

// timed compares an event's time with what the others were told of its commit.
func (r *replay[T]) timed(ev watchcache.Event[T], wrong wrongFunc) *Violation {
	w := &r.era.commits[r.next]
	switch {
	case r.alone && !w.timed:
		w.timed, w.time = true, ev.Time
	case r.alone && !ev.Time.Equal(w.time):
		v := wrong(2, "it has another time than an event of the same commit had before", fmt.Sprint(w.time))
		v.Got = fmt.Sprint(ev.Time)
		return v
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
	r.tells = true
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

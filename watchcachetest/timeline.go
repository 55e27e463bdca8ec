package watchcachetest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/watchcache/watchcache"
)

// timeline is everything that was written, as a model that is written for
// clarity: no limits, no sharing, nothing forgotten.
type timeline[T any] struct {
	opts watchcache.Options[T]
	eras []*era[T]
	now  map[string]watchcache.Item[T]
}

// era is what can be watched on one stream: a state that was listed, and every
// commit until a state that watchers do not get told the difference to.
type era[T any] struct {
	base    watchcache.Position
	state   map[string]watchcache.Item[T] // at base
	commits []written[T]
	head    watchcache.Position
}

// written is one commit.
type written[T any] struct {
	at     watchcache.Position
	events []watchcache.Event[T] // as a watcher of everything gets them
	items  []uint64              // revisions of the items that the events leave
	// A relist: nothing is known of what lies strictly between hole and at.
	relist  bool
	hole    watchcache.Position
	touched map[string]uint64 // items that differ in their revision only
	// The time that watchers were told, from the first event that one took on.
	timed bool
	time  time.Time
}

func (t *timeline[T]) last() *era[T] {
	if len(t.eras) == 0 {
		return nil
	}
	return t.eras[len(t.eras)-1]
}

// equal compares objects as the cache does.
func (t *timeline[T]) equal(a, b T) bool {
	if t.opts.Equal != nil {
		return t.opts.Equal(a, b)
	}
	return reflect.DeepEqual(a, b)
}

// begin starts an era.
func (t *timeline[T]) begin(at watchcache.Position, state map[string]watchcache.Item[T]) {
	t.now = state
	t.eras = append(t.eras, &era[T]{base: at, head: at, state: maps.Clone(state)})
}

// commit adds a commit. It returns what is wrong with it, if anything.
func (t *timeline[T]) commit(at watchcache.Position, changes []watchcache.Change[T]) *Violation {
	if wrong := t.follows(at); wrong != nil {
		return wrong
	}
	w := written[T]{at: at}
	for _, change := range changes {
		t.apply(&w, change, at.Revision)
	}
	t.add(w)
	return nil
}

// follows tells what is wrong with a position as the next one.
func (t *timeline[T]) follows(at watchcache.Position) *Violation {
	e := t.last()
	switch {
	case e == nil:
		return &Violation{Contract: 12, Why: "a commit was accepted before there was a state",
			Expected: "Began or Replaced first", Got: fmt.Sprintf("a commit at %v", at)}
	case at.Epoch != e.head.Epoch || !before(e.head, at) || at.Revision != e.head.Revision && at.Part != 0:
		return &Violation{Contract: 12, Why: "a commit was accepted that does not follow the one before",
			Expected: fmt.Sprintf("a position after %v", e.head), Got: fmt.Sprint(at)}
	}
	return nil
}

func (t *timeline[T]) add(w written[T]) {
	e := t.last()
	e.head = w.at
	// One that continues a revision is a place of its own, also if it only deleted
	// what was not there.
	if len(w.events) > 0 || w.relist || w.at.Part > 0 {
		e.commits = append(e.commits, w)
	}
}

// apply makes one change. revision is that of the item that it leaves.
func (t *timeline[T]) apply(w *written[T], change watchcache.Change[T], revision uint64) {
	prev, exists := t.now[change.Key]
	if change.Delete && !exists {
		return
	}
	ev := watchcache.Event[T]{Type: watchcache.Added, Key: change.Key, Object: change.Object, Revision: w.at.Revision}
	if change.Delete {
		change.Object = prev.Object
		ev.Type, ev.Cause, ev.Object = watchcache.Deleted, watchcache.Removed, prev.Object
	} else if exists {
		ev.Type = watchcache.Modified
	}
	if exists {
		ev.Prev = prev.Object
	}
	if t.opts.Publish != nil {
		ev.Object = t.opts.Publish(w.at.Revision, change, prev.Object)
	}
	if change.Delete {
		delete(t.now, change.Key)
	} else {
		t.now[change.Key] = watchcache.Item[T]{Key: change.Key, Object: ev.Object, Revision: revision}
	}
	w.events = append(w.events, ev)
	w.items = append(w.items, revision)
}

// progress moves the head without a commit.
func (t *timeline[T]) progress(at watchcache.Position) *Violation {
	if e := t.last(); e != nil && at == e.head {
		return nil
	}
	if wrong := t.follows(at); wrong != nil {
		return wrong
	}
	t.last().head = at
	return nil
}

// replace adds a listing that has become the state at a position.
func (t *timeline[T]) replace(at watchcache.Position, items []watchcache.Item[T]) *Violation {
	e := t.last()
	if e == nil || at.Epoch != e.head.Epoch {
		t.begin(at, t.adopted(at, items))
		return nil
	}
	if before(at, e.head) {
		return &Violation{Contract: 13, Why: "a state at a lower position was accepted in the same epoch",
			Expected: fmt.Sprintf("another epoch, or a position from %v on", e.head), Got: fmt.Sprint(at)}
	}
	w := written[T]{at: at, relist: true, hole: e.head, touched: make(map[string]uint64)}
	changes, revisions := t.difference(&w, items)
	switch {
	case at == e.head && len(changes) == 0:
		return nil
	case at == e.head:
		return &Violation{Contract: 13, Why: "a state that differs at the same position has ended nobody",
			Expected: "watchers that end as expired, and a position after " + e.head.String(), Got: fmt.Sprint(at)}
	case at.Revision == e.head.Revision && len(changes) > 0 || t.opts.Relist == watchcache.RelistExpire:
		t.begin(at, t.adopted(at, items))
		return nil
	}
	for i, change := range changes {
		t.apply(&w, change, revisions[i])
	}
	for key, revision := range w.touched {
		item := t.now[key]
		item.Revision = revision
		t.now[key] = item
	}
	t.add(w)
	return nil
}

// adopted is a listing as the state of a new era.
func (t *timeline[T]) adopted(at watchcache.Position, items []watchcache.Item[T]) map[string]watchcache.Item[T] {
	state := make(map[string]watchcache.Item[T], len(items))
	for _, item := range items {
		if item.Revision == 0 {
			item.Revision = at.Revision
		}
		if t.opts.Publish != nil {
			change := watchcache.Change[T]{Key: item.Key, Object: item.Object}
			item.Object = t.opts.Publish(at.Revision, change, t.now[item.Key].Object)
		}
		state[item.Key] = item
	}
	return state
}

// difference returns what turns the state into a listing: puts in order of the
// items' revisions, and among equals of the keys; deletions last, by key.
func (t *timeline[T]) difference(w *written[T], items []watchcache.Item[T]) (changes []watchcache.Change[T], revisions []uint64) {
	listed := make(map[string]bool, len(items))
	sorted := slices.Clone(items)
	for i := range sorted {
		listed[sorted[i].Key] = true
	}
	revisionOf := func(item watchcache.Item[T]) uint64 {
		return cmp.Or(item.Revision, w.at.Revision)
	}
	slices.SortFunc(sorted, func(a, b watchcache.Item[T]) int {
		return cmp.Or(cmp.Compare(revisionOf(a), revisionOf(b)), cmp.Compare(a.Key, b.Key))
	})
	add := func(change watchcache.Change[T], revision uint64) {
		changes, revisions = append(changes, change), append(revisions, revision)
	}
	for _, item := range sorted {
		old, exists := t.now[item.Key]
		if exists && t.equal(old.Object, item.Object) {
			if item.Revision != 0 && item.Revision != old.Revision {
				w.touched[item.Key] = item.Revision
			}
			continue
		}
		if exists && t.opts.SameIdentity != nil && !t.opts.SameIdentity(old.Object, item.Object) {
			add(watchcache.Change[T]{Key: item.Key, Delete: true}, 0)
		}
		add(watchcache.Change[T]{Key: item.Key, Object: item.Object}, revisionOf(item))
	}
	for _, key := range slices.Sorted(maps.Keys(t.now)) {
		if !listed[key] {
			add(watchcache.Change[T]{Key: key, Delete: true}, 0)
		}
	}
	return changes, revisions
}

// stateAt returns the state at a position of the era.
func (e *era[T]) stateAt(at watchcache.Position) map[string]watchcache.Item[T] {
	state := maps.Clone(e.state)
	for _, w := range e.commits {
		if before(at, w.at) {
			break
		}
		for i, ev := range w.events {
			if ev.Type == watchcache.Deleted {
				delete(state, ev.Key)
			} else {
				state[ev.Key] = watchcache.Item[T]{Key: ev.Key, Object: ev.Object, Revision: w.items[i]}
			}
		}
		for key, revision := range w.touched {
			item := state[key]
			item.Revision = revision
			state[key] = item
		}
	}
	return state
}

// after returns the number of commits up to a position.
func (e *era[T]) after(at watchcache.Position) int {
	n, _ := slices.BinarySearchFunc(e.commits, at, func(w written[T], at watchcache.Position) int {
		if before(at, w.at) {
			return 1
		}
		return -1
	})
	return n
}

// inHole reports whether nothing is known of a position.
func (e *era[T]) inHole(at watchcache.Position) bool {
	n := e.after(at)
	if n == len(e.commits) {
		return false
	}
	next := e.commits[n]
	return next.relist && before(next.hole, at) && before(at, next.at)
}

// positions returns the places that a revision may mean, the latest first.
func (e *era[T]) positions(revision uint64) []watchcache.Position {
	at := watchcache.Position{Epoch: e.base.Epoch, Revision: revision}
	if revision < e.base.Revision || revision > e.head.Revision {
		return nil
	}
	var found []watchcache.Position
	for _, w := range e.commits {
		if w.at.Revision == revision {
			found = append(found, w.at)
		}
	}
	if revision == e.base.Revision {
		found = append([]watchcache.Position{e.base}, found...)
	}
	if len(found) == 0 || found[0].Part != 0 && revision != e.base.Revision {
		found = append([]watchcache.Position{at}, found...)
	}
	slices.Reverse(found)
	return found
}

// at returns the places that a revision may mean in one era, or, if that is nil, in
// any.
func (t *timeline[T]) at(revision uint64, in *era[T]) []watchcache.Position {
	if in != nil {
		return in.positions(revision)
	}
	var all []watchcache.Position
	for _, e := range t.eras {
		all = append(all, e.positions(revision)...)
	}
	return all
}

// seen is what a commit is to a watcher with that selection.
func (w written[T]) seen(selects func(key string, object T) bool) []watchcache.Event[T] {
	var seen []watchcache.Event[T]
	for _, ev := range w.events {
		was := ev.Type != watchcache.Added && selects(ev.Key, ev.Prev)
		is := ev.Type != watchcache.Deleted && selects(ev.Key, ev.Object)
		switch {
		case was && is:
			ev.Type = watchcache.Modified
		case is:
			var none T
			ev.Type, ev.Prev = watchcache.Added, none
		case was && ev.Type == watchcache.Modified:
			ev.Type, ev.Cause = watchcache.Deleted, watchcache.LeftFilter
		case !was:
			continue
		}
		ev.More = true
		seen = append(seen, ev)
	}
	if len(seen) > 0 {
		seen[len(seen)-1].More = false
	}
	return seen
}

// reach says how far the checker was told of writes.
func (t *timeline[T]) reach() string {
	if e := t.last(); e != nil {
		return fmt.Sprintf("nothing beyond %v, the last that the checker was told of", e.head)
	}
	return "nothing: the checker was told of no state"
}

// compareState compares initial events, sorted by key, with a state. It returns
// the first difference, or nothing.
func (t *timeline[T]) compareState(events []watchcache.Event[T], state map[string]watchcache.Item[T], selects func(key string, object T) bool) (expected, got string) {
	none := "no such object"
	for _, key := range slices.Sorted(maps.Keys(state)) {
		item := state[key]
		if !selects(key, item.Object) {
			continue
		}
		want := fmt.Sprintf("%q at %d, %+v", key, item.Revision, item.Object)
		if len(events) == 0 || events[0].Key > key {
			return want, none
		}
		ev := events[0]
		have := fmt.Sprintf("%q at %d, %+v", ev.Key, ev.Revision, ev.Object)
		if ev.Key < key {
			return none, have
		}
		if ev.Revision != item.Revision || !t.equal(ev.Object, item.Object) {
			return want, have
		}
		events = events[1:]
	}
	if len(events) > 0 {
		return none, fmt.Sprintf("%q at %d, %+v", events[0].Key, events[0].Revision, events[0].Object)
	}
	return "", ""
}

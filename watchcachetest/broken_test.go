package watchcachetest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

type (
	event    = watchcache.Event[int]
	item     = watchcache.Item[int]
	change   = watchcache.Change[int]
	position = watchcache.Position
	watched  = watchcachetest.Watched[int]
)

func at(revision uint64) position { return position{Epoch: "e", Revision: revision} }

func even(_ string, object int) bool { return object%2 == 0 }

// written is a history with everything in it that a stream can get wrong.
func written() *watchcachetest.Checker[int] {
	check := watchcachetest.NewChecker(watchcache.Options[int]{})
	check.Replaced(at(1), item{Key: "a", Object: 1}, item{Key: "b", Object: 12}, item{Key: "z", Object: 26})
	check.Committed(at(2), change{Key: "a", Object: 2})
	check.Committed(at(3), change{Key: "c", Object: 4}, change{Key: "d", Object: 6}, change{Key: "e", Object: 8})
	check.Committed(at(4), change{Key: "b", Object: 13})
	check.Committed(at(5), change{Key: "c", Object: 6})
	check.Committed(at(6), change{Key: "d", Delete: true})
	check.Committed(at(7), change{Key: "x", Object: 1})
	return check
}

// step is one thing that a consumer tells.
type step func(*watched)

func took(ev event) step            { return func(w *watched) { w.Took(ev) } }
func placed(revision uint64) step   { return func(w *watched) { w.Position(at(revision), true) } }
func unplaced(w *watched)           { w.Position(position{}, false) }
func ended(err error) step          { return func(w *watched) { w.Ended(err) } }
func caughtUp(revision uint64) step { return func(w *watched) { w.CaughtUp(at(revision)) } }
func marker(t watchcache.EventType, revision uint64) step {
	return took(event{Type: t, Revision: revision})
}

// The places of the steps in whole.
const (
	initialB = iota
	initialZ
	noPosition
	synced
	syncedAt
	addedA
	addedC
	midway
	addedD
	addedE
	wholeAt
	leftB
	modifiedC
	removedD
	bookmark
	bookmarkAt
	left
	end
)

// whole is the stream, as it must be, of a watcher that selects even objects.
func whole() []step {
	return []step{
		initialB:   took(event{Type: watchcache.Added, Key: "b", Object: 12, Revision: 1, Initial: true}),
		initialZ:   took(event{Type: watchcache.Added, Key: "z", Object: 26, Revision: 1, Initial: true}),
		noPosition: unplaced,
		synced:     marker(watchcache.Synced, 1),
		syncedAt:   placed(1),
		addedA:     took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2}),
		addedC:     took(event{Type: watchcache.Added, Key: "c", Object: 4, Revision: 3, More: true}),
		midway:     placed(2),
		addedD:     took(event{Type: watchcache.Added, Key: "d", Object: 6, Revision: 3, More: true}),
		addedE:     took(event{Type: watchcache.Added, Key: "e", Object: 8, Revision: 3}),
		wholeAt:    placed(3),
		leftB:      took(event{Type: watchcache.Deleted, Key: "b", Object: 13, Prev: 12, Revision: 4, Cause: watchcache.LeftFilter}),
		modifiedC:  took(event{Type: watchcache.Modified, Key: "c", Object: 6, Prev: 4, Revision: 5}),
		removedD:   took(event{Type: watchcache.Deleted, Key: "d", Object: 6, Prev: 6, Revision: 6, Cause: watchcache.Removed}),
		bookmark:   marker(watchcache.Bookmark, 7),
		bookmarkAt: placed(7),
		left:       caughtUp(7),
		end:        ended(watchcache.ErrClosed),
	}
}

type edit func([]step) []step

func drop(from, to int) edit {
	return func(s []step) []step { return slices.Delete(s, from, to+1) }
}

func insert(before int, added ...step) edit {
	return func(s []step) []step { return slices.Insert(s, before, added...) }
}

func replace(place int, by step) edit {
	return func(s []step) []step { s[place] = by; return s }
}

func swap(i, j int) edit {
	return func(s []step) []step { s[i], s[j] = s[j], s[i]; return s }
}

func again(place int) edit {
	return func(s []step) []step { return slices.Insert(s, place, s[place]) }
}

func TestCheckerPassesAWholeStream(t *testing.T) {
	check := written()
	w := check.Watcher("even", even, position{})
	for _, tell := range whole() {
		tell(w)
		if err := check.Err(); err != nil {
			t.Fatalf("every beginning of a stream that keeps the contract passes, got: %v", err)
		}
	}
}

func TestCheckerExplainsABrokenStream(t *testing.T) {
	deletedB := event{Type: watchcache.Deleted, Key: "b", Object: 13, Prev: 12, Revision: 4, Cause: watchcache.LeftFilter}
	with := func(ev event, change func(*event)) step {
		change(&ev)
		return took(ev)
	}
	for _, row := range []struct {
		name     string
		edit     edit
		contract int
		why      string
		expected string
		got      string
	}{
		{"an event dropped", drop(addedA, addedA), 1, "skipped", `Added "a" at 2`, `Added "c" at 3`},
		{"an event dropped inside a commit", drop(addedD, addedD), 1, "skipped", `Added "d" at 3`, `Added "e" at 3`},
		{"the last event dropped", drop(removedD, bookmarkAt), 1, "never came", `Deleted "d" at 6, Removed`, "nothing left to take at e:7"},
		{"an event twice", again(addedA), 1, "second time", `Added "c" at 3`, `Added "a" at 2`},
		{"a commit twice", insert(leftB, whole()[addedC]), 1, "second time", `Deleted "b" at 4`, `Added "c" at 3`},
		{"commits reordered", swap(leftB, modifiedC), 1, "out of order", `Deleted "b" at 4`, `Modified "c" at 5`},
		{"events of a commit reordered", swap(addedD, addedE), 1, "out of order", `Added "d" at 3`, `Added "e" at 3`},
		{"an event that nobody wrote", replace(addedA, took(event{Type: watchcache.Added, Key: "q", Object: 2, Revision: 2})), 1, "nobody wrote", `Added "a" at 2`, `Added "q" at 2`},
		{"an event ahead of the writer", insert(left, took(event{Type: watchcache.Added, Key: "q", Revision: 9})), 1, "nobody wrote", "e:7", `Added "q" at 9`},

		{"a position in the middle of a commit", replace(midway, placed(3)), 2, "beyond", `Added "d" at 3`, "position e:3"},
		{"a position that lags", replace(wholeAt, placed(2)), 2, "behind", "e:3 or later", "position e:2"},
		{"a position before its event", replace(wholeAt, placed(4)), 2, "beyond", `Deleted "b" at 4`, "position e:4"},
		{"a commit without its seam", replace(addedD, took(event{Type: watchcache.Added, Key: "d", Object: 6, Revision: 3})), 2, "More", "More true", "More false"},

		{"no Synced", drop(synced, syncedAt), 3, "before Synced", "Synced", `Added "a" at 2`},
		{"no Synced, and silence", drop(synced, bookmarkAt), 3, "Synced is missing", "Synced", "nothing left to take at e:7"},
		{"two Synced", again(synced), 3, "exactly one", `Added "a" at 2`, "Synced at 1"},
		{"a late Synced at the wrong revision", replace(synced, marker(watchcache.Synced, 5)), 3, "not the selected state", `"a" at 2, 2`, "no such object"},
		{"a position before Synced", replace(noPosition, placed(1)), 3, "before Synced", "no position", "position e:1"},
		{"no position after Synced", replace(syncedAt, unplaced), 3, "no position", "e:1", "no position"},
		{"an initial object missing", drop(initialB, initialB), 3, "not the selected state", `"b" at 1, 12`, "no such object"},
		{"an initial object of another revision", replace(initialZ, took(event{Type: watchcache.Added, Key: "z", Object: 28, Revision: 1, Initial: true})), 3, "not the selected state", `"z" at 1, 26`, `"z" at 1, 28`},
		{"initial objects unsorted", swap(initialB, initialZ), 3, "sorted", `above "z"`, `Added "b" at 1`},
		{"an initial object after Synced", insert(addedA, whole()[initialB]), 3, "outside", `Added "a" at 2`, "initial"},

		{"an initial object beyond the filter", insert(initialB, took(event{Type: watchcache.Added, Key: "a", Object: 1, Revision: 1, Initial: true})), 4, "does not select", "selected", `Added "a" at 1`},
		{"an event beyond the filter", insert(bookmark, took(event{Type: watchcache.Added, Key: "x", Object: 1, Revision: 7})), 4, "does not select", "no change", `Added "x" at 7`},
		{"the wrong cause", replace(leftB, with(deletedB, func(ev *event) { ev.Cause = watchcache.Removed })), 4, "Cause", "LeftFilter", "Removed"},
		{"the wrong type", replace(leftB, with(deletedB, func(ev *event) { ev.Type, ev.Cause = watchcache.Modified, 0 })), 4, "Type", "Deleted", "Modified"},
		{"the wrong object", replace(leftB, with(deletedB, func(ev *event) { ev.Object = 12 })), 4, "Object", "13", "12"},
		{"the wrong object before", replace(leftB, with(deletedB, func(ev *event) { ev.Prev = 13 })), 4, "Prev", "12", "13"},

		{"a silent end", replace(end, ended(nil)), 5, "without a reason", "an error", "ended: <nil>"},
		{"a second reason", insert(end, ended(watchcache.ErrStopped)), 5, "two reasons", "watcher stopped", "closed"},
		{"an event after the end", insert(addedA, ended(watchcache.ErrStopped)), 5, "after the end", "nothing", `Added "a" at 2`},
		{"lagging in the initial phase", insert(synced, ended(&watchcache.StalledError{Phase: watchcache.PhaseStreaming})), 5, "lagging in its initial phase", "ErrStalled", "ended"},
		{"an end that lies about where it was", insert(addedA, ended(&watchcache.StalledError{Phase: watchcache.PhaseStreaming, Position: at(3)})), 5, "beyond what was taken", `Added "a" at 2`, "ended"},
		{"an untyped end by policy", replace(end, ended(watchcache.ErrLagged)), 5, "how it stalled", "StalledError", "lagged"},
		{"expired for nothing", replace(end, ended(&watchcache.ExpiredError{Requested: at(7), Oldest: at(7)})), 6, "not listed anew", "go on", "expired"},
		{"an expiry that lies about where it was", insert(addedA, ended(&watchcache.ExpiredError{Requested: at(3), Oldest: at(7)})), 6, "beyond what was taken", `Added "a" at 2`, "expired"},
		{"an untyped expiry", replace(end, ended(watchcache.ErrExpired)), 6, "what expired", "ExpiredError", "expired"},

		{"an early bookmark", insert(removedD, marker(watchcache.Bookmark, 6)), 14, "before everything", `Deleted "d" at 6`, "Bookmark at 6"},
		{"a bookmark inside of a commit", insert(addedD, marker(watchcache.Bookmark, 3)), 14, "before everything", `Added "d" at 3`, "Bookmark at 3"},
		{"a bookmark before Synced", insert(synced, marker(watchcache.Bookmark, 1)), 14, "before the state", "Synced", "Bookmark at 1"},
		{"a bookmark that goes back", insert(left, marker(watchcache.Bookmark, 6)), 14, "went back", "7 or later", "Bookmark at 6"},
		{"a bookmark at the start", insert(addedA, marker(watchcache.Bookmark, 1)), 14, "nothing new", "beyond e:1", "Bookmark at 1"},
		{"a bookmark ahead of the writer", insert(left, marker(watchcache.Bookmark, 8)), 14, "nobody wrote", "e:7", "Bookmark at 8"},
		{"a resync that goes back", insert(left, marker(watchcache.Reset, 1), whole()[initialB], whole()[initialZ], marker(watchcache.Synced, 1)), 14, "resync went back", "7 or later", "Reset at 1"},
		{"a Reset ahead of the writer", insert(left, marker(watchcache.Reset, 8)), 3, "nobody wrote", "e:7", "Reset at 8"},
		{"a Synced of another revision than its Reset", insert(left, marker(watchcache.Reset, 7), took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2, Initial: true}),
			took(event{Type: watchcache.Added, Key: "c", Object: 6, Revision: 5, Initial: true}), took(event{Type: watchcache.Added, Key: "e", Object: 8, Revision: 3, Initial: true}),
			took(event{Type: watchcache.Added, Key: "z", Object: 26, Revision: 1, Initial: true}), marker(watchcache.Synced, 6)), 3, "another revision than its Reset", "Synced at 7", "Synced at 6"},

		{"a Synced with a key", replace(synced, took(event{Type: watchcache.Synced, Key: "z", Revision: 1})), 3, "a marker with Key", "nothing else", `Synced "z" at 1`},
		{"a bookmark with an object", replace(bookmark, took(event{Type: watchcache.Bookmark, Object: 1, Revision: 7})), 3, "a marker with Object", "nothing else", "Bookmark at 7"},
		{"a bookmark with an object before", replace(bookmark, took(event{Type: watchcache.Bookmark, Prev: 1, Revision: 7})), 3, "a marker with Prev", "nothing else", "Bookmark at 7"},
		{"a bookmark with a cause", replace(bookmark, took(event{Type: watchcache.Bookmark, Cause: watchcache.Removed, Revision: 7})), 3, "a marker with Cause", "nothing else", "Removed"},
		{"a bookmark with more to follow", replace(bookmark, took(event{Type: watchcache.Bookmark, More: true, Revision: 7})), 3, "a marker with More", "nothing else", "more to follow"},
		{"an initial Synced", replace(synced, took(event{Type: watchcache.Synced, Initial: true, Revision: 1})), 3, "a marker with Initial", "nothing else", "initial"},
		{"an initial event with an object before", replace(initialB, took(event{Type: watchcache.Added, Key: "b", Object: 12, Prev: 11, Revision: 1, Initial: true})), 3, "an initial event with Prev", "of an item", `Added "b" at 1`},
		{"an initial event with more to follow", replace(initialB, took(event{Type: watchcache.Added, Key: "b", Object: 12, Revision: 1, Initial: true, More: true})), 3, "an initial event with More", "of an item", "more to follow"},
		{"an initial event with a cause", replace(initialB, took(event{Type: watchcache.Added, Key: "b", Object: 12, Revision: 1, Initial: true, Cause: watchcache.Removed})), 3, "an initial event with Cause", "of an item", "Removed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := written()
			w := check.Watcher("even", even, position{})
			for _, tell := range row.edit(whole()) {
				tell(w)
			}
			violated(t, check, "even", row.contract, row.why, row.expected, row.got)
		})
	}
}

// violated verifies that the checker found exactly one violation, and explains
// it.
func violated(t *testing.T, check *watchcachetest.Checker[int], who string, contract int, why, expected, got string) {
	t.Helper()
	var v *watchcachetest.Violation
	if err := check.Err(); !errors.As(err, &v) {
		t.Fatalf("want a violation of contract %d, got %v", contract, err)
	}
	if v.Watcher != who || v.Contract != contract {
		t.Errorf("want contract %d broken by %q, got: %v", contract, who, v)
	}
	for _, part := range []struct{ name, have, want string }{{"Why", v.Why, why}, {"Expected", v.Expected, expected}, {"Got", v.Got, got}} {
		if !strings.Contains(part.have, part.want) {
			t.Errorf("want %s with %q, got %q", part.name, part.want, part.have)
		}
		if !strings.Contains(v.Error(), part.have) {
			t.Errorf("want the message to have %s, %q; it is %q", part.name, part.have, v)
		}
	}
	if again := check.Err(); again == nil || again.Error() != v.Error() {
		t.Errorf("want the same violation when asked again, got %v", again)
	}
}

func TestViolationTellsTheLastEvents(t *testing.T) {
	check := written()
	w := check.Watcher("even", even, position{})
	for _, tell := range drop(leftB, leftB)(whole()) {
		tell(w)
	}
	var v *watchcachetest.Violation
	if !errors.As(check.Err(), &v) {
		t.Fatal("want a violation")
	}
	want := []string{
		`Added "a" at 2`, `Added "c" at 3, more to follow`, "position e:2",
		`Added "d" at 3, more to follow`, `Added "e" at 3`, "position e:3",
	}
	if !slices.Equal(v.Last, want) {
		t.Errorf("want the last six that were told, %q, got %q", want, v.Last)
	}
	for _, text := range want {
		if !strings.Contains(v.Error(), text) {
			t.Errorf("want %q in the message, got %q", text, v)
		}
	}
}

// TestCheckerHoldsSyncedToItsReset also where that was at the beginning of everything.
func TestCheckerHoldsSyncedToItsReset(t *testing.T) {
	check := watchcachetest.NewChecker(watchcache.Options[int]{})
	check.Replaced(at(0))
	check.Committed(at(1), change{Key: "a", Object: 1})
	w := check.Watcher("w", even, position{})
	for _, tell := range []step{marker(watchcache.Synced, 0), marker(watchcache.Reset, 0), marker(watchcache.Synced, 1)} {
		tell(w)
	}
	violated(t, check, "w", 3, "another revision than its Reset", "Synced at 0", "Synced at 1")
}

// TestCheckerHoldsEventsOfACommitToOneTime: what one watcher was told of a commit's time is what
// all the others are.
func TestCheckerHoldsEventsOfACommitToOneTime(t *testing.T) {
	check := written()
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	first, second := check.Watcher("first", even, at(1)), check.Watcher("second", even, at(1))
	ev := event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2, Time: noon}
	first.Took(ev)
	ev.Time = noon.In(time.FixedZone("elsewhere", 3600))
	second.Took(ev)
	if err := check.Err(); err != nil {
		t.Fatalf("want the same instant to pass, got: %v", err)
	}
	ev = event{Type: watchcache.Added, Key: "c", Object: 4, Revision: 3, More: true, Time: noon}
	first.Took(ev)
	if err := check.Err(); err != nil {
		t.Fatal(err)
	}
	ev.Time = noon.Add(1)
	second.Took(ev)
	violated(t, check, "second", 2, "another time", "12:00:00 +0000", "12:00:00.000000001")
}

// TestCheckerFollowsAllThatAStreamMayBe: where no position is told, as with a channel, one
// Synced may be of several parts of its revision; what comes next tells of which.
func TestCheckerFollowsAllThatAStreamMayBe(t *testing.T) {
	part := func(n uint32) position { return position{Epoch: "e", Revision: 8, Part: n} }
	modified := func(object, prev int) step {
		return took(event{Type: watchcache.Modified, Key: "a", Object: object, Prev: prev, Revision: 8})
	}
	state := []step{
		took(event{Type: watchcache.Added, Key: "a", Object: 4, Revision: 8, Initial: true}),
		took(event{Type: watchcache.Added, Key: "z", Object: 26, Revision: 1, Initial: true}), marker(watchcache.Synced, 8),
	}
	next := took(event{Type: watchcache.Modified, Key: "a", Object: 8, Prev: 4, Revision: 9})
	for _, row := range []struct {
		name  string
		steps []step
		why   string
	}{
		{"of the first", []step{modified(6, 4), modified(4, 6), next, ended(watchcache.ErrClosed)}, ""},
		{"of the last", []step{next, ended(watchcache.ErrClosed)}, ""},
		{"of none, as the next tells", []step{modified(4, 6)}, "where it started"},
		{"of the first, and then a gap", []step{modified(6, 4), next}, "was skipped"},
		{"of the last, and then back", []step{next, modified(6, 4)}, "where it started"},
		{"of the first, and ahead of the writer", []step{modified(6, 4), modified(4, 6), next,
			took(event{Type: watchcache.Added, Key: "y", Object: 2, Revision: 10})}, "nobody wrote"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := watchcachetest.NewChecker(watchcache.Options[int]{})
			check.Replaced(at(1), item{Key: "a", Object: 2}, item{Key: "z", Object: 26})
			for n, object := range []int{4, 6, 4} {
				check.Committed(part(uint32(n)), change{Key: "a", Object: object})
			}
			check.Committed(at(9), change{Key: "a", Object: 8})
			w := check.Watcher("w", even, position{})
			for n, tell := range append(slices.Clone(state), row.steps...) {
				tell(w)
				if err := check.Err(); err != nil && (row.why == "" || n < len(state)) {
					t.Fatalf("step %d: want no violation, got: %v", n, err)
				}
			}
			if row.why != "" {
				violated(t, check, "w", 1, row.why, "", "")
			}
		})
	}
}

// TestCheckerFollowsAllThatAStreamMayBeAcrossListings: the same state under two numberings,
// of which the stream is one.
func TestCheckerFollowsAllThatAStreamMayBeAcrossListings(t *testing.T) {
	for _, object := range []int{2, 3} {
		check := watchcachetest.NewChecker(watchcache.Options[int]{})
		w := check.Watcher("w", nil, position{})
		check.Replaced(at(5), item{Key: "k", Object: 1, Revision: 4})
		check.Committed(at(6), change{Key: "k", Object: 2})
		check.Replaced(foreign(5), item{Key: "k", Object: 1, Revision: 4})
		check.Committed(foreign(6), change{Key: "k", Object: 3})
		w.Took(event{Type: watchcache.Added, Key: "k", Object: 1, Revision: 4, Initial: true})
		w.Took(event{Type: watchcache.Synced, Revision: 5})
		w.Took(event{Type: watchcache.Modified, Key: "k", Object: object, Prev: 1, Revision: 6})
		if err := check.Err(); err != nil {
			t.Errorf("want a stream of either numbering to pass, got with %d: %v", object, err)
		}
	}
}

func TestCheckerWaitsForTheWriter(t *testing.T) {
	check := written()
	w := check.Watcher("all", nil, at(7))
	w.Took(event{Type: watchcache.Added, Key: "q", Object: 3, Revision: 8})
	violated(t, check, "all", 1, "nobody wrote", "e:7", `Added "q" at 8`)
	check.Committed(at(8), change{Key: "q", Object: 3})
	if err := check.Err(); err != nil {
		t.Errorf("an event that was taken before its commit was told is none too many, got: %v", err)
	}
}

package watchcachetest_test

import (
	"iter"
	"testing"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

func foreign(revision uint64) position { return position{Epoch: "f", Revision: revision} }

// relisted is written with a hole from 7 to 20, in which "a" became 40 and "z"
// went.
func relisted() *watchcachetest.Checker[int] {
	check := written()
	check.Replaced(at(20), item{Key: "a", Object: 40, Revision: 15}, item{Key: "b", Object: 13, Revision: 4},
		item{Key: "c", Object: 6, Revision: 5}, item{Key: "e", Object: 8, Revision: 18}, item{Key: "x", Object: 1, Revision: 7})
	return check
}

func TestCheckerExplainsABrokenRelist(t *testing.T) {
	modifiedA := event{Type: watchcache.Modified, Key: "a", Object: 40, Prev: 2, Revision: 20, More: true}
	removedZ := event{Type: watchcache.Deleted, Key: "z", Object: 26, Prev: 26, Revision: 20, Cause: watchcache.Removed}
	expired := &watchcache.ExpiredError{Requested: at(20), Oldest: foreign(3)}
	for _, row := range []struct {
		name                       string
		start                      position
		steps                      []step
		contract                   int // 0: there is nothing wrong
		why, expected, explanation string
	}{
		{"the difference", at(7), []step{took(modifiedA), took(removedZ), placed(20), ended(expired)}, 0, "", "", ""},
		{"the difference after a start before", at(6), []step{took(modifiedA), took(removedZ), placed(20)}, 0, "", "", ""},
		{"expired inside of the hole", at(9), []step{ended(&watchcache.ExpiredError{Requested: at(9), Oldest: at(1)})}, 0, "", "", ""},
		{"a state with revisions that the listing knows", position{}, []step{
			took(event{Type: watchcache.Added, Key: "e", Object: 8, Revision: 18, Initial: true}), marker(watchcache.Synced, 20)}, 0, "", "", ""},
		{"the old epoch outlived", at(20), []step{func(w *watched) { w.CaughtUp(foreign(4)) }}, 13, "listed anew at f:3", "ErrExpired", "f:4"},

		{"deletions first", at(7), []step{took(removedZ), took(modifiedA)}, 1, "out of order", `Modified "a"`, `Deleted "z"`},
		{"a difference that skips a deletion", at(7), []step{took(modifiedA), placed(20)}, 2, "beyond", `Deleted "z"`, "position e:20"},
		{"a bookmark in the hole", at(7), []step{marker(watchcache.Bookmark, 10)}, 13, "hole", "known", "Bookmark at 10"},
		{"a position in the hole", at(7), []step{placed(10)}, 13, "hole", "known", "position e:10"},
		{"a state in the hole", position{}, []step{marker(watchcache.Synced, 10)}, 13, "hole", "known", "Synced at 10"},
		{"the difference from inside of the hole", at(9), []step{took(modifiedA)}, 13, "strictly inside", "ErrExpired", `Modified "a"`},
		{"an event of the new epoch", at(20), []step{took(event{Type: watchcache.Added, Key: "n", Object: 2, Revision: 4})}, 13, "listed anew", "ErrExpired", `Added "n" at 4`},
		{"a position of the new epoch", at(20), []step{func(w *watched) { w.Position(foreign(3), true) }}, 13, "another epoch", "epoch e", "f:3"},
		{"expired without the epoch", at(20), []step{ended(&watchcache.ExpiredError{Requested: at(20), Oldest: at(20)})}, 6, "does not say", "ErrEpoch", "expired"},
		{"a start at no such epoch", position{Epoch: "g", Revision: 1}, nil, 6, "no stream can start", "refused", "started after g:1"},
		{"a start before the state", foreign(2), nil, 6, "no stream can start", "refused", "started after f:2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := relisted()
			check.Replaced(foreign(3), item{Key: "m", Object: 2})
			check.Committed(foreign(4), change{Key: "n", Object: 2})
			selects := even
			if row.start.IsZero() {
				selects = func(key string, _ int) bool { return key == "e" }
			}
			w := check.Watcher("w", selects, row.start)
			for _, tell := range row.steps {
				tell(w)
			}
			if row.contract != 0 {
				violated(t, check, "w", row.contract, row.why, row.expected, row.explanation)
			} else if err := check.Err(); err != nil {
				t.Errorf("want no violation, got: %v", err)
			}
		})
	}
}

// Where no position is told, a state that looks as if it were inside of a hole may be
// of another numbering.
func TestAStateInsideOfAHoleOrOfAnotherNumbering(t *testing.T) {
	opts := watchcache.Options[int]{Mirror: true}
	c, _ := watchcache.New(opts)
	defer c.Close()
	check := watchcachetest.NewChecker(opts)
	writer := watchcachetest.NewWriter(check, c)
	at := func(revision uint64, part uint32) watchcache.Position {
		return watchcache.Position{Epoch: "e", Revision: revision, Part: part}
	}
	list := func(object int) iter.Seq2[watchcache.Item[int], error] {
		return func(yield func(watchcache.Item[int], error) bool) {
			yield(watchcache.Item[int]{Key: "a", Object: object}, nil)
		}
	}
	writer.Replace(at(5, 0), list(1))
	writer.Replace(at(45, 1), list(2))
	watched := check.Watcher("w", nil, watchcache.Position{})
	writer.Replace(at(45, 1), list(3))
	w, err := c.Watch(t.Context(), watchcache.WatchOptions[int]{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ev := range w.Channel(0) {
		watched.Took(ev)
		if n++; n == 2 {
			break
		}
	}
	if err := check.Err(); err != nil {
		t.Error(err)
	}
}

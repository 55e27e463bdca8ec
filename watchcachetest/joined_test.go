package watchcachetest_test

import (
	"testing"

	"github.com/watchcache/watchcache"
)

func TestCheckerExplainsABrokenJoin(t *testing.T) {
	enters := event{Type: watchcache.Added, Key: "c", Object: 6, Revision: 5}
	for _, row := range []struct {
		name          string
		steps         []step
		contract      int
		why, expected string
		got           string
	}{
		{"all of it", []step{
			took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2, More: true}),
			took(event{Type: watchcache.Added, Key: "e", Object: 8, Revision: 3, More: true}),
			took(event{Type: watchcache.Deleted, Key: "b", Object: 13, Prev: 12, Revision: 4, Cause: watchcache.LeftFilter, More: true}),
			placed(1), took(enters), placed(6), marker(watchcache.Bookmark, 7), caughtUp(7)}, 0, "", "", ""},
		{"one commit at a time", []step{
			took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2}), placed(2)}, 0, "", "", ""},
		{"a key forgotten", []step{
			took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2, More: true}), took(enters)}, 1, "joined by key", `Added "d" at 3`, `Added "c" at 5`},
		{"a key that came and went", []step{
			took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2}),
			took(event{Type: watchcache.Deleted, Key: "d", Object: 6, Prev: 6, Revision: 6, Cause: watchcache.Removed})}, 1, "joined by key", `Added "e" at 3`, `Deleted "d" at 6`},
		{"a position in the middle", []step{
			took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2, More: true}), placed(2)}, 2, "beyond", "joined", "position e:2"},
		{"an early bookmark", []step{marker(watchcache.Bookmark, 3)}, 14, "before everything", `Added "a" at 2`, "Bookmark at 3"},
		{"the end dropped", []step{
			took(event{Type: watchcache.Added, Key: "a", Object: 2, Revision: 2}), caughtUp(7)}, 1, "never came", `Added "e" at 3`, "nothing left"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := written()
			w := check.Watcher("w", even, at(1)).Coalesced()
			for _, tell := range row.steps {
				tell(w)
			}
			if row.contract != 0 {
				violated(t, check, "w", row.contract, row.why, row.expected, row.got)
			} else if err := check.Err(); err != nil {
				t.Errorf("want no violation, got: %v", err)
			}
		})
	}
}

package watchcachetest_test

import (
	"testing"

	"github.com/watchcache/watchcache"
)

func TestCheckerExplainsAnUnfitRefusal(t *testing.T) {
	for _, row := range []struct {
		name     string
		after    position
		err      error
		honest   bool
		why      string
		expected string
	}{
		{"expired", at(2), &watchcache.ExpiredError{Requested: at(2), Oldest: at(4)}, true, "", ""},
		{"another epoch", foreign(2), &watchcache.ExpiredError{Requested: foreign(2), Oldest: at(4)}, true, "", ""},
		{"inside of a hole", at(10), &watchcache.ExpiredError{Requested: at(10), Oldest: at(4)}, true, "", ""},
		{"in the future", at(21), &watchcache.FutureError{Requested: at(21), Head: at(20)}, true, "", ""},
		{"something else", at(21), watchcache.ErrTooManyWatchers, true, "", ""},
		{"not expired", at(5), &watchcache.ExpiredError{Requested: at(5), Oldest: at(4)}, false, "has not expired", "oldest position is e:4"},
		{"not in the future", at(5), &watchcache.FutureError{Requested: at(5), Head: at(20)}, false, "not in the future", "beyond e:20"},
		{"expired, of another position", at(2), &watchcache.ExpiredError{Requested: at(3), Oldest: at(4)}, false, "what was asked", "e:2"},
		{"future, of another position", at(22), &watchcache.FutureError{Requested: at(21), Head: at(20)}, false, "what was asked", "e:22"},
		{"expired, untyped", at(2), watchcache.ErrExpired, false, "what expired", "ExpiredError"},
		{"future, untyped", at(21), watchcache.ErrFuture, false, "how far", "FutureError"},
		{"no reason", at(2), nil, false, "without a reason", "an error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := relisted()
			w := check.Watcher("w", nil, at(7))
			w.Refused(row.after, row.err)
			if !row.honest {
				violated(t, check, "w", 6, row.why, row.expected, "refused to start after")
			} else if err := check.Err(); err != nil {
				t.Errorf("want no violation, got: %v", err)
			}
		})
	}
}

// TestCheckerKnowsThatAHoleEndsInsideOfARevision: the parts of a relist's revision
// before the one that was listed are in its hole.
func TestCheckerKnowsThatAHoleEndsInsideOfARevision(t *testing.T) {
	part := func(n uint32) position { return position{Epoch: "e", Revision: 20, Part: n} }
	check := written()
	check.Replaced(part(2), item{Key: "a", Object: 40, Revision: 15})
	check.Watcher("w", nil, at(7)).Refused(part(1), &watchcache.ExpiredError{Requested: part(1), Oldest: at(4), HoleEnd: part(2)})
	if err := check.Err(); err != nil {
		t.Errorf("want no violation, got: %v", err)
	}
	check.Watcher("w", nil, at(7)).Refused(part(2), &watchcache.ExpiredError{Requested: part(2), Oldest: at(4)})
	violated(t, check, "w", 6, "has not expired", "oldest position is e:4", "refused to start after")
}

func TestCheckerExplainsAnEndThatBlamesTheEpoch(t *testing.T) {
	check := written()
	check.Replaced(position{Epoch: "e", Revision: 7, Part: 1}, item{Key: "a", Object: 8})
	check.Watcher("sound", nil, at(7)).Ended(&watchcache.ExpiredError{Requested: at(7), Oldest: position{Epoch: "e", Revision: 7, Part: 1}})
	if err := check.Err(); err != nil {
		t.Fatalf("want expired within the epoch to pass where another state came at the same revision, got: %v", err)
	}
	check.Watcher("w", nil, at(7)).Ended(&watchcache.ExpiredError{Requested: at(7), Oldest: foreign(7)})
	violated(t, check, "w", 6, "blames another epoch", "without ErrEpoch", "ended")
}

package watchcachetest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

func TestCheckerExplainsABrokenWritingSide(t *testing.T) {
	for _, row := range []struct {
		name     string
		write    func(*watchcachetest.Checker[int])
		contract int
		why      string
		expected string
		got      string
	}{
		{"a commit that goes back", func(c *watchcachetest.Checker[int]) { c.Committed(at(7), change{Key: "a"}) }, 12, "does not follow", "after e:7", "e:7"},
		{"progress that goes back", func(c *watchcachetest.Checker[int]) { c.Progressed(at(6)) }, 12, "does not follow", "after e:7", "e:6"},
		{"a commit of another epoch", func(c *watchcachetest.Checker[int]) { c.Committed(foreign(8), change{Key: "a"}) }, 12, "does not follow", "after e:7", "f:8"},
		{"a part without its beginning", func(c *watchcachetest.Checker[int]) {
			c.Committed(position{Epoch: "e", Revision: 8, Part: 1}, change{Key: "a"})
		}, 12, "does not follow", "after e:7", "e:8.1"},
		{"a lower state in the same epoch", func(c *watchcachetest.Checker[int]) { c.Replaced(at(3)) }, 13, "lower position", "another epoch", "e:3"},
		{"another state at the same position", func(c *watchcachetest.Checker[int]) { c.Replaced(at(7)) }, 13, "ended nobody", "after e:7", "e:7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := written()
			row.write(check)
			violated(t, check, "", row.contract, row.why, row.expected, row.got)
		})
	}
	t.Run("a commit before there is a state", func(t *testing.T) {
		check := watchcachetest.NewChecker(watchcache.Options[int]{})
		check.Committed(at(1), change{Key: "a"})
		violated(t, check, "", 12, "before there was a state", "Began or Replaced", "e:1")
	})
}

func TestCheckerExplainsAWrongSnapshot(t *testing.T) {
	cache, err := watchcache.New(watchcache.Options[int]{Epoch: "e"})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	check := watchcachetest.NewChecker(watchcache.Options[int]{})
	check.Began(cache.Snapshot())
	if _, err := cache.Put("a", 1); err != nil {
		t.Fatal(err)
	}
	check.Snapshot(cache.Snapshot())
	violated(t, check, "", 3, "nobody wrote", "e:0", "a snapshot at e:1")
	check.Committed(at(1), change{Key: "a", Object: 2})
	violated(t, check, "", 3, "the snapshot at e:1 is not the state", `"a" at 1, 2`, `"a" at 1, 1`)
}

func TestWriterNoticesARefusedWriteThatChangedSomething(t *testing.T) {
	c := newCache(t, options{Epoch: "e"})
	check := watchcachetest.NewChecker(options{})
	w := watchcachetest.NewWriter(check, c)
	if err := w.Replace(at(3), failed); !errors.Is(err, errBroken) {
		t.Fatalf("want the listing's own error, got %v", err)
	}
	if err := check.Err(); err != nil {
		t.Errorf("want nothing wrong with a write that is refused, got: %v", err)
	}
	err := w.Replace(at(3), func(yield func(item, error) bool) {
		c.Put("a", 1)
		yield(item{}, errBroken)
	})
	if !errors.Is(err, errBroken) {
		t.Fatalf("want the listing's own error, got %v", err)
	}
	violated(t, check, "", 12, "refused has changed something (broken)", "e:0", "e:1")
}

// failing is a test that notes its errors.
type failing struct {
	testing.TB
	errors []any
}

func (t *failing) Helper()           {}
func (t *failing) Error(args ...any) { t.errors = append(t.errors, args...) }

func TestVerifyFailsTheTest(t *testing.T) {
	check := written()
	sound := &failing{TB: t}
	if check.Verify(sound); len(sound.errors) != 0 {
		t.Errorf("want no error without a violation, got %v", sound.errors)
	}
	check.Watcher("w", nil, at(1)).Ended(nil)
	broken := &failing{TB: t}
	if check.Verify(broken); len(broken.errors) != 1 {
		t.Errorf("want the violation as an error of the test, got %v", broken.errors)
	}
}

func TestCheckerJoinsTheViolationsOfAllWatchers(t *testing.T) {
	check := written()
	for _, name := range []string{"first", "second"} {
		check.Watcher(name, nil, at(1)).Ended(nil)
	}
	check.Watcher("sound", nil, at(1)).Ended(watchcache.ErrStopped)
	err := check.Err()
	if err == nil || !strings.Contains(err.Error(), `"first"`) || !strings.Contains(err.Error(), `"second"`) || strings.Contains(err.Error(), `"sound"`) {
		t.Errorf("want the violations of first and second, got %v", err)
	}
}

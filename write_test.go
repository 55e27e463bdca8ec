package watchcache_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"testing"

	"github.com/watchcache/watchcache"
)

// unchanged fails unless f is refused for that reason, and leaves the cache and a
// watcher of it as they were.
func unchanged(t *testing.T, c *cache, want error, f func() error) {
	t.Helper()
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	before, snapshot := c.Position(), c.Snapshot()
	if err := f(); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
	if c.Position() != before || c.Snapshot() != snapshot || w.Err() != nil {
		t.Errorf("refused, and yet the cache went from %v to %v, the watcher to %v", before, c.Position(), w.Err())
	}
	wantPending(t, w, "")
	w.Stop()
}

func TestRefusedWritesChangeNothing(t *testing.T) {
	bad := errors.New("half-way")
	boom := func(string, int) []string { panic(bad) }
	armed := false
	c := newCache(t, options{Epoch: "e",
		Indexes: map[string]func(string, int) []string{"i": func(k string, n int) []string {
			if armed {
				return boom(k, n)
			}
			return nil
		}},
		Publish: func(_ uint64, ch change, _ int) int {
			if ch.Object == 666 {
				panic(bad)
			}
			return ch.Object
		},
		Equal: func(a, b int) bool {
			if b == 667 {
				panic(bad)
			}
			return a == b
		}})
	apply(t, c, 0, "a=1")
	apply(t, c, 5, "b=1")
	applied := func(cm commit) func() error {
		return func() error {
			_, err := c.Apply(cm)
			return err
		}
	}
	replaced := func(items iter.Seq2[item, error]) func() error {
		return func() error { return c.Replace(at(9), items) }
	}
	unchanged(t, c, watchcache.ErrInvalidKey, applied(commit{Changes: []change{{Key: "x"}, {Key: ""}}}))
	unchanged(t, c, watchcache.ErrRevisionOrder, applied(commit{Revision: 5, Changes: []change{{Key: "x"}}}))
	unchanged(t, c, watchcache.ErrRevisionOrder, applied(commit{Revision: 4, Continues: true, Changes: []change{{Key: "x"}}}))
	unchanged(t, c, watchcache.ErrRevisionOrder, func() error { return c.Progress(4) })
	unchanged(t, c, watchcache.ErrNotFound, func() error { _, err := c.Delete("none"); return err })
	unchanged(t, c, watchcache.ErrFuture, func() error { return c.Trim(at(6)) })
	unchanged(t, c, watchcache.ErrEpoch, func() error { return c.Trim(watchcache.Position{Epoch: "f"}) })
	unchanged(t, c, watchcache.ErrCallbackPanic, applied(commit{Changes: []change{{Key: "x", Object: 1}, {Key: "y", Object: 666}}}))
	unchanged(t, c, watchcache.ErrCallbackPanic, replaced(listing("a=667 c=1")))
	unchanged(t, c, watchcache.ErrInvalidKey, replaced(listing("a=1 a=2")))
	unchanged(t, c, watchcache.ErrInvalidKey, replaced(listing("=1")))
	unchanged(t, c, bad, replaced(func(yield func(item, error) bool) { _ = yield(item{Key: "x"}, nil) && yield(item{}, bad) }))
	unchanged(t, c, watchcache.ErrCallbackPanic, replaced(func(func(item, error) bool) { panic(bad) }))
	armed = true
	var panicked *watchcache.PanicError
	unchanged(t, c, watchcache.ErrCallbackPanic, func() error {
		_, err := c.Put("a", 2)
		if !errors.As(err, &panicked) || panicked.Value != bad || !errors.Is(err, bad) || len(panicked.Stack) == 0 {
			t.Errorf("%v, want a PanicError with the value and the stack", err)
		}
		return err
	})
	armed = false
	apply(t, c, 0, "a=3") // and it works again
}

func TestAfterCloseNothingButReading(t *testing.T) {
	c := newCache(t, options{})
	apply(t, c, 0, "a=1")
	position := c.Position()
	c.Close()
	_, put := c.Put("a", 2)
	_, del := c.Delete("a")
	_, watched := c.Watch(context.Background(), watch{})
	for what, err := range map[string]error{"Put": put, "Delete": del, "Progress": c.Progress(9), "Replace": c.Replace(watchcache.Position{}, listing("")),
		"Trim": c.Trim(position), "Watch": watched, "WaitRevision": c.WaitRevision(context.Background(), 9)} {
		if !errors.Is(err, watchcache.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", what, err)
		}
	}
	if i, ok := c.Get("a"); !ok || i.Object != 1 || c.Snapshot().Len() != 1 {
		t.Error("reading ended with Close")
	}
}

func TestMeaningsOfCommits(t *testing.T) {
	c := newCache(t, options{Epoch: "e"})
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	apply(t, c, 0, "a=1")
	apply(t, c, 0, "a=1")   // equal puts are changes
	apply(t, c, 0, "-none") // no event, and the revision advances
	apply(t, c, 0, "")      // equals Progress
	apply(t, c, 0, "a=2 a=3 -a a=4")
	wantPending(t, w, "+a=1@1 ~a=1@2 ~a=2@5… ~a=3@5… -a=3@5… +a=4@5")
	if c.Position() != at(5) {
		t.Errorf("at %v, want e:5", c.Position())
	}
	if err := c.Progress(5); err != nil {
		t.Errorf("Progress at the head: %v", err)
	}
	if revision, err := c.Apply(commit{Revision: 5}); err != nil || revision != 5 {
		t.Errorf("an empty commit at the head: %d, %v, want a no-op", revision, err)
	}
	if _, err := c.Apply(commit{Revision: math.MaxUint64, Changes: []change{{Key: "z"}}}); err != nil {
		t.Error(err)
	}
	if _, err := c.Put("z", 1); !errors.Is(err, watchcache.ErrRevisionOrder) {
		t.Errorf("Put when revisions are used up: %v", err)
	}
}

func TestContinuedRevisionsHaveParts(t *testing.T) {
	c := mirror(t, options{}, 4, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	part := func(revision uint64, key string) watchcache.Position {
		t.Helper()
		if _, err := c.Apply(commit{Revision: revision, Continues: true, Changes: []change{{Key: key, Object: 1}}}); err != nil {
			t.Fatal(err)
		}
		return c.Position()
	}
	apply(t, c, 5, "a=1")
	first := c.Position()
	second := part(5, "b")
	third := part(5, "c")
	if third != (watchcache.Position{Epoch: "e", Revision: 5, Part: 2}) {
		t.Errorf("at %v, want e:5.2", third)
	}
	wantPending(t, w, "+a=1@5 +b=1@5 +c=1@5")
	if p, _ := w.Position(); p != third {
		t.Errorf("the watcher is at %v, want %v", p, third)
	}
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(first)}), "+b=1@5 +c=1@5")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(second)}), "+c=1@5")
	apply(t, c, 6, "d=1")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(third)}), "+d=1@6")
}

func TestRelistsOfEveryKind(t *testing.T) {
	c := mirror(t, options{}, 10, "a=1 b=1 c=1")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	err := c.Replace(at(20), func(yield func(item, error) bool) {
		_ = yield(item{Key: "b", Object: 2, Revision: 19}, nil) && yield(item{Key: "d", Object: 1, Revision: 15}, nil) && yield(item{Key: "a", Object: 1, Revision: 18}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantPending(t, w, "+d=1@20… ~b=2@20… -c=1@20") // by the items' revisions, deletions last
	if i, _ := c.Get("a"); i.Revision != 18 {
		t.Errorf("a is of revision %d, want what the listing knows", i.Revision)
	}
	s, err := c.SnapshotAt(10)
	if err != nil {
		t.Fatal(err)
	}
	if i, _ := s.Get("a"); i.Revision != 10 || s.Len() != 3 {
		t.Errorf("before the relist a is of revision %d among %d, want 10 among 3", i.Revision, s.Len())
	}
	wantRefused(t, c, watch{Start: watchcache.After(at(15))}, watchcache.ErrExpired)
	if _, err := c.SnapshotAt(15); !errors.Is(err, watchcache.ErrExpired) {
		t.Errorf("SnapshotAt in the hole: %v", err)
	}
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(10))}), "+d=1@20… ~b=2@20… -c=1@20")

	if err := c.Replace(at(20), listing("a=1 b=2 d=1")); err != nil {
		t.Fatal(err)
	}
	wantPending(t, w, "") // the same revision, no difference
	if err := c.Replace(at(20), listing("a=1")); err != nil {
		t.Fatal(err)
	}
	wantPending(t, w, "!position is of another epoch")
	wantRefused(t, c, watch{Start: watchcache.After(at(20))}, watchcache.ErrExpired)
	mustWatch(t, c, watch{Start: watchcache.After(c.Position())})
}

func TestWaitRevisionNoticesANewNumbering(t *testing.T) {
	c := mirror(t, options{}, 10, "")
	waiting := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		waiting <- c.WaitRevision(context.Background(), 99)
	}()
	<-ready
	for {
		select {
		case err := <-waiting:
			if !errors.Is(err, watchcache.ErrEpoch) {
				t.Errorf("%v, want ErrEpoch", err)
			}
			return
		default:
			c.Replace(watchcache.Position{Revision: 5}, listing("")) // lower, again and again
		}
	}
}

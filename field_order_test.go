package watchcache_test

import (
	"errors"
	"testing"

	"github.com/watchcache/watchcache"
)

// Section C: order, duplicates, going back in time.

func TestFieldC1NoEventTwiceAfterAReplay(t *testing.T) {
	c := mirror(t, options{}, 10, "")
	for revision := uint64(11); revision <= 20; revision++ {
		apply(t, c, revision, "a=1")
	}
	w := mustWatch(t, c, watch{Start: watchcache.After(at(10))})
	for want := uint64(11); want <= 22; want++ {
		if want == 15 {
			apply(t, c, 21, "a=1")
			apply(t, c, 22, "a=1")
		}
		if ev, ok, _ := w.TryNext(); !ok || ev.Revision != want {
			t.Fatalf("took revision %d, want %d", ev.Revision, want)
		}
	}
	wantPending(t, w, "")
}

func TestFieldC3ABookmarkFollowsWhatItSpeaksOf(t *testing.T) {
	c := mirror(t, options{}, 49, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	apply(t, c, 50, "a=1")
	w.RequestBookmark()
	apply(t, c, 51, "a=2")
	wantPending(t, w, "+a=1@50 ~a=2@51 bookmark@51")
}

func TestFieldC4AWatcherThatMatchesNothingReportsTheHead(t *testing.T) {
	c := mirror(t, options{}, 1, "")
	for revision := uint64(2); revision <= 100; revision++ {
		apply(t, c, revision, "a=1")
	}
	for name, o := range map[string]watch{"key": {Key: "none"}, "filter": {Filter: func(string, int) bool { return false }}} {
		o.Start = watchcache.After(at(1))
		w := mustWatch(t, c, o)
		w.RequestBookmark()
		if got := pending(t, w); got != "bookmark@100" {
			t.Errorf("%s: took %q, want the bookmark at the head", name, got)
		}
		if p, _ := w.Position(); p != at(100) {
			t.Errorf("%s: position %v, want 100", name, p)
		}
	}
}

func TestFieldC5CatchingUpIsInTheOrderOfTime(t *testing.T) {
	c := mirror(t, options{}, 10, "")
	apply(t, c, 20, "k2=1")
	apply(t, c, 30, "k1=1")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(at(10))}), "+k2=1@20 +k1=1@30")
}

func TestFieldC9HolesAreLegal(t *testing.T) {
	c := mirror(t, options{}, 0, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	for _, revision := range []uint64{1, 2, 1000001} {
		apply(t, c, revision, "a=1")
	}
	wantPending(t, w, "+a=1@1 ~a=1@2 ~a=1@1000001")
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.AfterRevision(500)}), "~a=1@1000001")
}

func TestFieldC10NobodyGetsAKeyOfAnother(t *testing.T) {
	c := newCache(t, options{})
	a := mustWatch(t, c, watch{Start: watchcache.FromNow(), Prefix: "/a/"})
	b := mustWatch(t, c, watch{Start: watchcache.FromNow(), Prefix: "/b/"})
	apply(t, c, 0, "/a/x=1 /b/x=2 /c=3")
	wantPending(t, a, "+/a/x=1@1")
	wantPending(t, b, "+/b/x=2@1")
}

func TestFieldC11ARevisionThatGoesBackIsLoud(t *testing.T) {
	c := mirror(t, options{}, 1, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	apply(t, c, 7, "a=1")
	apply(t, c, 9, "a=2")
	for _, revision := range []uint64{8, 9, 0} {
		_, err := c.Apply(commit{Revision: revision, Changes: []change{{Key: "a", Object: 3}}})
		var order *watchcache.RevisionError
		if !errors.As(err, &order) || order.Head != 9 || order.Revision != revision {
			t.Errorf("Apply at %d after 9: %v, want a RevisionError that says so", revision, err)
		}
	}
	wantPending(t, w, "+a=1@7 ~a=2@9")
	if i, _ := c.Get("a"); i.Object != 2 || c.Position() != at(9) {
		t.Errorf("refused commits changed the state to %v at %v", i, c.Position())
	}
}

package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func TestFieldC2ARelistAsksForWhatTheCacheHasAndSaysSoIfItGetsLess(t *testing.T) {
	for name, relist := range map[string]uint64{"at the head": 100, "behind": 90} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCache(t, options{Mirror: true})
				lost := make(chan struct{})
				s := &script{list: func(n int) (uint64, string, error) {
					if n == 1 {
						return 100, "a=100", nil
					}
					return relist, fmt.Sprintf("a=%d", relist), nil
				}}
				s.watch = func(ctx context.Context, n int, _ watchcache.Position, yield func(sourceEvent, error) bool) {
					if n == 1 {
						<-lost
						yield(sourceEvent{}, watchcache.ErrExpired)
						return
					}
					<-ctx.Done()
				}
				stop := runs(t, c, s)
				w, err := c.Watch(t.Context(), watch{})
				if err != nil {
					t.Fatal(err)
				}
				wantPending(t, w, "+a=100@100i synced@100")
				close(lost)
				time.Sleep(time.Minute)
				stop()
				if want := []uint64{0, 100}; !slices.Equal(s.atLeast, want) {
					t.Errorf("the source was asked for at least %v, want %v", s.atLeast, want)
				}
				if relist == 100 {
					wantPending(t, w, "")
				} else { // the older state is another numbering's, and nobody takes it for a later one
					wantPending(t, w, "!position is of another epoch")
					wantRefused(t, c, watch{Start: watchcache.After(at(100))}, watchcache.ErrEpoch)
				}
				w.Stop()
			})
		})
	}
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

func TestFieldC6NothingFollowsBelowABookmark(t *testing.T) {
	c := mirror(t, options{}, 50, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	if err := c.Progress(60); err != nil {
		t.Fatal(err)
	}
	w.RequestBookmark()
	wantPending(t, w, "bookmark@60")
	if _, err := c.Apply(commit{Revision: 55, Changes: []change{{Key: "a", Object: 1}}}); !errors.Is(err, watchcache.ErrRevisionOrder) {
		t.Errorf("Apply at 55 after progress to 60: %v, want ErrRevisionOrder", err)
	}
	if err := c.Progress(59); !errors.Is(err, watchcache.ErrRevisionOrder) {
		t.Errorf("Progress to 59 after 60: %v, want ErrRevisionOrder", err)
	}
	apply(t, c, 61, "a=1")
	w.RequestBookmark()
	wantPending(t, w, "+a=1@61 bookmark@61")
}

func TestFieldC7NobodySeesTheHeadGoBack(t *testing.T) {
	c := mirror(t, options{}, 1, "")
	stop := make(chan struct{})
	var observers sync.WaitGroup
	defer observers.Wait()
	defer close(stop)
	for name, head := range map[string]func() uint64{
		"Position": func() uint64 { return c.Position().Revision },
		"Snapshot": func() uint64 { return c.Snapshot().Position().Revision },
		"Get":      func() uint64 { i, _ := c.Get("a"); return i.Revision },
		"Stats":    func() uint64 { return c.Stats().Position.Revision },
	} {
		observers.Go(func() {
			for last := uint64(0); ; {
				now := head()
				if now < last {
					t.Errorf("%s: %d after %d, want never back", name, now, last)
					return
				}
				last = now
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for revision := uint64(2); revision < 1000; revision++ {
		apply(t, c, revision, "a=1")
	}
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

func TestFieldC10AStormOfResumesKeepsRangesApart(t *testing.T) {
	const commits = 1000
	c := mirror(t, options{}, 1, "")
	var consumers sync.WaitGroup
	for i := range 8 {
		consumers.Go(func() {
			prefix := []string{"/a/", "/b/"}[i%2]
			for position, seen := at(1), 0; seen < commits; {
				w, err := c.Watch(context.Background(), watch{Start: watchcache.After(position), Prefix: prefix})
				if err != nil {
					t.Errorf("resuming %s after %v: %v", prefix, position, err)
					return
				}
				left := 1 + (seen+i)%40
				for ev, err := range w.Events() {
					if err != nil || !strings.HasPrefix(ev.Key, prefix) || ev.Object != seen+1 {
						t.Errorf("%s after %d got %s (%v), want number %d of its own", prefix, seen, show(ev), err, seen+1)
						return
					}
					position, _ = w.Position()
					if seen, left = ev.Object, left-1; left == 0 || seen == commits {
						break
					}
				}
			}
		})
	}
	for i := 1; i <= commits; i++ {
		apply(t, c, uint64(i+1), fmt.Sprintf("/a/x=%d /b/x=%d /c=%d", i, i, i))
	}
	consumers.Wait()
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

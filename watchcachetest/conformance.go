package watchcachetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/watchcache/watchcache"
)

// RunConformance tests that watching by way of an adapter or a wrapper keeps the
// contract of package watchcache: the state and then every change, in order, once,
// commits whole, also after a resumption, and with every selection; streams that
// end say why; bookmarks are true; nothing is left behind. Start is called for each
// subtest, and makes a subject whose state is empty, with these options, to which it
// adds what it needs (Mirror, Epoch); t.Cleanup ends it. Objects are short texts, or
// what Subject.Encode makes of them.
//
// Each test waits for what must come, for a minute at most, in real time: what is
// behind an adapter is not in a testing/synctest bubble.
func RunConformance[T any](t *testing.T, start func(t testing.TB, opts watchcache.Options[T]) Subject[T]) {
	for _, c := range conformance[T]() {
		t.Run(c.name, func(t *testing.T) { c.test(t, start) })
	}
}

// starter makes a subject for one test.
type starter[T any] = func(t testing.TB, opts watchcache.Options[T]) Subject[T]

// requirement is one test.
type requirement[T any] struct {
	name     string
	run      func(*trial[T])
	needs    string // what Subject.Lacks must not name
	capacity int    // of history; 0: the default
}

func conformance[T any]() []requirement[T] {
	return []requirement[T]{
		{name: "EmptyState", run: testEmptyState[T]},
		{name: "StateThenChanges", run: testStateThenChanges[T]},
		{name: "Selections", run: testSelections[T]},
		{name: "Resuming", run: testResuming[T]},
		{name: "Now", run: testNow[T], needs: "FromNow"},
		{name: "Concurrency", run: testConcurrency[T]},
		{name: "Stalled", run: testStalled[T], capacity: 64},
		{name: "Coalesce", run: testCoalesce[T], needs: "Coalesce"},
		{name: "Bookmarks", run: testBookmarks[T], needs: "Bookmarks"},
		{name: "AtLeast", run: testAtLeast[T], needs: "AtLeast"},
		{name: "Deadline", run: testDeadline[T], needs: "Deadline"},
		{name: "Ending", run: testEnding[T]},
		{name: "Cuts", run: testCuts[T]},
		{name: "Forgetting", run: testForgetting[T]},
	}
}

// test tries it with a subject of its own, if that has what it needs.
func (q requirement[T]) test(t testing.TB, start starter[T]) {
	t.Helper()
	r := newTrial(t, start, watchcache.Options[T]{Capacity: q.capacity})
	if r.has(q.needs) {
		q.run(r)
	}
}

func testEmptyState[T any](r *trial[T]) {
	c := r.follow("of nothing", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	c.await() // Synced, with no write needed
	r.commit(0)
	r.finish(c)
}

func testStateThenChanges[T any](r *trial[T]) {
	var all []*consumer[T]
	for n := range 60 {
		if n%10 == 5 {
			r.caughtUp()
			all = append(all, r.follow(fmt.Sprintf("from commit %d", n), watchcache.WatchOptions[string]{}, watchcache.Position{}, nil))
		}
		r.commit(n)
	}
	r.finish(all...)
}

// kind is a selection, by its options.
type kind struct {
	name    string
	opts    watchcache.WatchOptions[string]
	selects selects
	needs   string // what Subject.Lacks must not name
}

// nothing is a selection of which nothing is ever written.
var nothing = kind{"nothing", watchcache.WatchOptions[string]{Prefix: "green/"}, func(key, _ string) bool { return strings.HasPrefix(key, "green/") }, ""}

var kinds = []kind{
	{"key", watchcache.WatchOptions[string]{Key: "red/1"}, func(key, _ string) bool { return key == "red/1" }, ""},
	{"prefix", watchcache.WatchOptions[string]{Prefix: "red/"}, func(key, _ string) bool { return strings.HasPrefix(key, "red/") }, ""},
	{"range", watchcache.WatchOptions[string]{From: "blue/2", To: "red/3"}, func(key, _ string) bool { return key >= "blue/2" && key < "red/3" }, ""},
	nothing,
	{"filter", watchcache.WatchOptions[string]{Filter: even}, even, "Filter"},
	{"prefix and filter", watchcache.WatchOptions[string]{Prefix: "blue/", Filter: even},
		func(key, object string) bool { return strings.HasPrefix(key, "blue/") && even(key, object) }, "Filter"},
	{"index", watchcache.WatchOptions[string]{Index: watchcache.IndexValue{Name: parity, Value: "even"}}, even, "Index"},
	{"prefix and index", watchcache.WatchOptions[string]{Prefix: "blue/", Index: watchcache.IndexValue{Name: parity, Value: "even"}},
		func(key, object string) bool { return strings.HasPrefix(key, "blue/") && even(key, object) }, "Index"},
}

// kinds returns the selections that the subject has.
func (r *trial[T]) kinds() []kind {
	var all []kind
	for _, k := range kinds {
		if r.has(k.needs) {
			all = append(all, k)
		}
	}
	return all
}

func testSelections[T any](r *trial[T]) {
	var all []*consumer[T]
	for n := range 80 {
		if n == 0 || n == 40 {
			r.caughtUp()
			for _, k := range r.kinds() {
				all = append(all, r.follow(fmt.Sprintf("%s, from commit %d", k.name, n), k.opts, watchcache.Position{}, k.selects))
			}
		}
		r.commit(n)
	}
	r.finish(all...)
}

// testResuming resumes after each position that the state was ever at.
func testResuming[T any](r *trial[T]) {
	positions := []watchcache.Position{r.Cache.Position()}
	for n := range 20 {
		r.commit(n)
		positions = append(positions, r.caughtUp())
	}
	var all []*consumer[T]
	kinds := r.kinds()
	for i, at := range positions {
		if at.IsZero() {
			continue
		}
		k := kinds[i%len(kinds)]
		after := watchcache.After(at)
		k.opts.Start = after
		all = append(all,
			r.follow(fmt.Sprintf("everything after %v", at), watchcache.WatchOptions[string]{Start: after}, at, nil),
			r.follow(fmt.Sprintf("%s after %v", k.name, at), k.opts, at, k.selects))
	}
	for n := range 20 {
		r.commit(n)
	}
	r.finish(all...)
}

// testNow has watchers start while nothing is written, so that now is a position.
func testNow[T any](r *trial[T]) {
	var all []*consumer[T]
	for n := range 30 {
		r.commit(n)
		if n%5 == 0 {
			at := r.caughtUp()
			for _, k := range append(r.kinds(), kind{name: "everything"}) {
				k.opts.Start = watchcache.FromNow()
				all = append(all, r.follow(fmt.Sprintf("%s from now, at %v", k.name, at), k.opts, at, k.selects))
			}
		}
	}
	r.finish(all...)
}

// testConcurrency has watchers start and end while commits are made.
func testConcurrency[T any](r *trial[T]) {
	stays := r.follow("stays", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	kinds := r.kinds()
	var comers sync.WaitGroup
	for g := range 4 {
		comers.Go(func() {
			for n := range 10 {
				k := kinds[(g+n)%len(kinds)]
				c := r.follow(fmt.Sprintf("%d of %d", n, g), k.opts, watchcache.Position{}, k.selects)
				if n%2 == 0 {
					c.await()
				}
				c.end()
			}
		})
	}
	for n := range 200 {
		r.commit(n)
	}
	comers.Wait()
	r.finish(stays)
}

// testStalled has one consumer stop in the middle of its stream: the others and
// the writer do not notice, and when it goes on it is told why it was ended, or comes
// to have all: because nothing was lost, or by a Reset and the state.
func testStalled[T any](r *trial[T]) {
	stalled := r.pausing("stalled", watchcache.WatchOptions[string]{})
	r.commit(0)
	if !stalled.hasPaused() {
		return
	}
	lively := r.follow("lively", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	for n := range 2000 {
		r.commit(n)
		if n%16 == 0 {
			lively.await() // keeps up, by pauses of the writer
		}
	}
	lively.await()
	at := r.caughtUp()
	close(stalled.resume)
	stalled.until("it goes on: it was neither told that it was left behind, nor has it come to have all",
		func() bool { return stalled.synced && stalled.at >= at.Revision })
	r.mu.Lock()
	over := stalled.over
	r.mu.Unlock()
	if !over {
		stalled.watched.CaughtUp(at)
		stalled.end()
	} else if stalled.err == nil {
		r.Errorf("%s: it ended without being told that it was left behind", stalled.name)
	}
	r.finish(lively)
}

func testEnding[T any](r *trial[T]) {
	r.commit(0)
	r.caughtUp()
	// A loop that is left. Its context outlives nobodyLeft, so that nothing but the
	// loop can have ended the watcher.
	left, cancelLeft := context.WithCancel(context.Background())
	defer cancelLeft()
	events, err := r.watch(left, watchcache.WatchOptions[string]{})
	if err != nil {
		r.Fatal(err)
	}
	for _, err := range events {
		if err != nil {
			r.Errorf("the first pair is an error: %v", err)
		}
		break
	}
	// A context that has ended before.
	ended, cancel := context.WithCancelCause(r.ctx)
	cancel(errEnough)
	if err := r.reason(ended, watchcache.WatchOptions[string]{}); !errors.Is(err, errEnough) {
		r.Errorf("a watch whose context had ended: %v, want its cause", err)
	}
	// A position that nobody has given out.
	foreign := watchcache.After(watchcache.Position{Epoch: "nobody's", Revision: 1})
	if err := r.reason(r.ctx, watchcache.WatchOptions[string]{Start: foreign}); !errors.Is(err, watchcache.ErrExpired) {
		r.Errorf("a watch after a foreign position: %v, want ErrExpired", err)
	}
	// Sleeping consumers.
	c := r.follow("asleep", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	c.await()
	r.finish(c)
}

// testCuts breaks the connection while commits are made: nothing is lost, and
// nothing comes twice.
func testCuts[T any](r *trial[T]) {
	if r.Cut == nil {
		return
	}
	c := r.follow("over cuts", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	for n := range 30 {
		if n%10 != 3 {
			r.commit(n)
			continue
		}
		c.await() // what has come through tells that there is a connection to cut
		r.commit(n)
		r.Cut()
	}
	r.finish(c)
}

// testForgetting has the adapter list anew: the state is right again, and the
// revisions between are expired.
func testForgetting[T any](r *trial[T]) {
	if r.Forget == nil {
		return
	}
	w, err := r.Cache.Watch(r.ctx, watchcache.WatchOptions[T]{})
	if err != nil {
		r.Fatal(err)
	}
	follower := Follow(r, w)
	for n := range 10 {
		r.commit(n)
	}
	before := r.caughtUp()
	r.Forget(func() {
		for n := range 10 {
			r.commit(n)
		}
	})
	at := r.caughtUp()
	if at.Epoch == before.Epoch {
		hole := watchcache.Position{Epoch: before.Epoch, Revision: before.Revision + 1}
		if _, err := r.Cache.Watch(r.ctx, watchcache.WatchOptions[T]{Start: watchcache.After(hole)}); !errors.Is(err, watchcache.ErrExpired) {
			r.Errorf("a watch after %v, between %v and a listing at %v: %v, want ErrExpired", hole, before, at, err)
		}
	}
	state := map[string]string{}
	for item := range r.items(r.Cache.Snapshot()) {
		state[item.Key] = item.Object
	}
	if !maps.Equal(state, r.state) {
		r.Errorf("the state after a listing is %v, want %v", state, r.state)
	}
	r.Cache.Shutdown(r.ctx)
	<-follower.Done()
	if err := follower.Err(); !errors.Is(err, watchcache.ErrClosed) && !errors.Is(err, watchcache.ErrExpired) {
		r.Errorf("a watcher that lived through a listing ended with: %v", err)
	}
	if errors.Is(follower.Err(), watchcache.ErrClosed) {
		lived := map[string]string{}
		for key, item := range follower.State() {
			lived[strings.TrimPrefix(key, r.Prefix)] = r.text(item.Object)
		}
		if !maps.Equal(lived, r.state) {
			r.Errorf("a watcher that lived through a listing has %v, want %v", lived, r.state)
		}
	}
}

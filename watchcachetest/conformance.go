package watchcachetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// Subject is what [RunConformance] tests: a cache that gets its state by way of an
// adapter, or whose watchers get theirs by way of a wrapper, or both.
type Subject struct {
	// Cache is the cache that is watched. If a Run feeds it, that is under way.
	Cache *watchcache.Cache[string]

	// Commit makes changes where the state comes from, together, and returns the
	// revision that the cache will have them at. nil: Cache.Apply. Each call has
	// at least one change, that of a key that is there only if it deletes.
	Commit func(changes ...watchcache.Change[string]) (revision uint64, err error)

	// Single says that the backend commits one change at a time: no call of Commit
	// has more.
	Single bool

	// Watch is how the wrapper's clients watch. The sequence is as that of
	// Watcher.Events: it ends with the context's cause, or another error, as its
	// last pair. nil: Cache.Watch and Events.
	Watch func(ctx context.Context, opts watchcache.WatchOptions[string]) (iter.Seq2[watchcache.Event[string], error], error)

	// Cut, if there is a connection to the backend, breaks it. The adapter must
	// resume where it was.
	Cut func()

	// Forget, if the backend has a history, breaks the connection and has the
	// backend forget its history, so that the adapter must list anew. The kit
	// commits while it is broken.
	Forget func(meanwhile func())
}

// RunConformance tests that watching by way of an adapter or a wrapper keeps the
// contract of package watchcache: the state and then every change, in order, once,
// commits whole, also after a resumption, and with every selection; streams that
// end say why; nothing is left behind. Start is called for each subtest, and makes
// a subject whose state is empty, with these options, to which it adds what it needs
// (Mirror, Epoch); t.Cleanup ends it. Objects are short texts.
//
// Each test waits for what must come, for a minute at most, in real time: what is
// behind an adapter is not in a testing/synctest bubble.
func RunConformance(t *testing.T, start func(t testing.TB, opts watchcache.Options[string]) Subject) {
	for _, c := range conformance {
		t.Run(c.name, func(t *testing.T) { c.run(t, start) })
	}
}

// patience is how long a test waits for all that must come.
var patience = time.Minute

// starter makes a subject for one test.
type starter = func(t testing.TB, opts watchcache.Options[string]) Subject

var conformance = []struct {
	name string
	run  func(t testing.TB, start starter)
}{
	{"EmptyState", testEmptyState},
	{"StateThenChanges", testStateThenChanges},
	{"Selections", testSelections},
	{"Resuming", testResuming},
	{"Concurrency", testConcurrency},
	{"Stalled", testStalled},
	{"Ending", testEnding},
	{"Cuts", testCuts},
	{"Forgetting", testForgetting},
}

func testEmptyState(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	c := r.follow("of nothing", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	c.await() // Synced, with no write needed
	r.commit(0)
	r.finish(c)
}

func testStateThenChanges(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	var all []*consumer
	for n := range 60 {
		if n%10 == 5 {
			r.caughtUp()
			all = append(all, r.follow(fmt.Sprintf("from commit %d", n), watchcache.WatchOptions[string]{}, watchcache.Position{}, nil))
		}
		r.commit(n)
	}
	r.finish(all...)
}

// kinds are the selections that are tried, by their options.
var kinds = []struct {
	name    string
	opts    watchcache.WatchOptions[string]
	selects selects
}{
	{"key", watchcache.WatchOptions[string]{Key: "red/1"}, func(key, _ string) bool { return key == "red/1" }},
	{"prefix", watchcache.WatchOptions[string]{Prefix: "red/"}, func(key, _ string) bool { return strings.HasPrefix(key, "red/") }},
	{"range", watchcache.WatchOptions[string]{From: "blue/2", To: "red/3"}, func(key, _ string) bool { return key >= "blue/2" && key < "red/3" }},
	{"nothing", watchcache.WatchOptions[string]{Prefix: "green/"}, func(key, _ string) bool { return strings.HasPrefix(key, "green/") }},
	{"filter", watchcache.WatchOptions[string]{Filter: even}, even},
	{"prefix and filter", watchcache.WatchOptions[string]{Prefix: "blue/", Filter: even},
		func(key, object string) bool { return strings.HasPrefix(key, "blue/") && even(key, object) }},
}

func even(_, object string) bool { return strings.HasSuffix(object, " even") }

func testSelections(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	var all []*consumer
	for n := range 80 {
		if n == 0 || n == 40 {
			r.caughtUp()
			for _, k := range kinds {
				all = append(all, r.follow(fmt.Sprintf("%s, from commit %d", k.name, n), k.opts, watchcache.Position{}, k.selects))
			}
		}
		r.commit(n)
	}
	r.finish(all...)
}

// testResuming resumes after each position that the state was ever at.
func testResuming(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	positions := []watchcache.Position{r.Cache.Position()}
	for n := range 20 {
		r.commit(n)
		positions = append(positions, r.caughtUp())
	}
	var all []*consumer
	for i, at := range positions {
		if at.IsZero() {
			continue
		}
		k := kinds[i%len(kinds)]
		all = append(all,
			r.follow(fmt.Sprintf("everything after %v", at), watchcache.WatchOptions[string]{}, at, nil),
			r.follow(fmt.Sprintf("%s after %v", k.name, at), k.opts, at, k.selects))
	}
	for n := range 20 {
		r.commit(n)
	}
	r.finish(all...)
}

// testConcurrency has watchers start and end while commits are made.
func testConcurrency(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	stays := r.follow("stays", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	var comers sync.WaitGroup
	for g := range 4 {
		comers.Go(func() {
			for n := range 10 {
				c := r.follow(fmt.Sprintf("%d of %d", n, g), kinds[(g+n)%len(kinds)].opts, watchcache.Position{}, kinds[(g+n)%len(kinds)].selects)
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
func testStalled(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{Capacity: 64})
	stalled, resume := make(chan struct{}), make(chan struct{})
	own, enough := context.WithCancelCause(r.ctx)
	defer enough(errEnough)
	events, err := r.Watch(own, watchcache.WatchOptions[string]{})
	if err != nil {
		t.Fatal(err)
	}
	var reason error         // of the goroutine, until it closes ended
	var newest atomic.Uint64 // the revision of all that there is
	ended, hasAll := make(chan struct{}), make(chan struct{})
	watched := r.check.Watcher("stalled", nil, watchcache.Position{})
	r.rest.Go(func() {
		defer close(ended)
		n, told := 0, false
		for ev, err := range events {
			if err != nil {
				reason = err
				watched.Ended(err)
				continue
			}
			watched.Took(ev)
			if n++; n == 1 {
				close(stalled)
				<-resume
			}
			if all := newest.Load(); all > 0 && ev.Revision >= all && !ev.Initial && !ev.More && !told {
				told = true
				close(hasAll)
			}
		}
	})
	r.commit(0)
	select {
	case <-stalled:
	case <-r.ctx.Done():
		t.Error("nothing comes")
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
	newest.Store(at.Revision)
	close(resume)
	select {
	case <-hasAll:
		watched.CaughtUp(at)
		enough(errEnough)
	case <-ended:
		if reason == nil || own.Err() != nil {
			t.Errorf("the stalled stream ended with: %v; want to be told that it was left behind", reason)
		}
	case <-r.ctx.Done():
		t.Error("the stalled stream goes on: it was neither told that it was left behind, nor has it come to have all")
	}
	r.finish(lively)
}

func testEnding(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	r.commit(0)
	r.caughtUp()
	// A loop that is left. Its context outlives nobodyLeft, so that nothing but the
	// loop can have ended the watcher.
	left, cancelLeft := context.WithCancel(context.Background())
	defer cancelLeft()
	events, err := r.Watch(left, watchcache.WatchOptions[string]{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range events {
		if err != nil {
			t.Errorf("the first pair is an error: %v", err)
		}
		break
	}
	// A context that has ended before.
	ended, cancel := context.WithCancelCause(r.ctx)
	cancel(errEnough)
	if err := r.reason(ended, watchcache.FromState()); !errors.Is(err, errEnough) {
		t.Errorf("a watch whose context had ended: %v, want its cause", err)
	}
	// A position that nobody has given out.
	foreign := watchcache.Position{Epoch: "nobody's", Revision: 1}
	if err := r.reason(r.ctx, watchcache.After(foreign)); !errors.Is(err, watchcache.ErrExpired) {
		t.Errorf("a watch after a foreign position: %v, want ErrExpired", err)
	}
	// Sleeping consumers.
	c := r.follow("asleep", watchcache.WatchOptions[string]{}, watchcache.Position{}, nil)
	c.await()
	r.finish(c)
}

// reason returns why a watch does not start, or how it ends.
func (r *trial) reason(ctx context.Context, start watchcache.Start) error {
	events, err := r.Watch(ctx, watchcache.WatchOptions[string]{Start: start})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	r.rest.Go(func() {
		var last error
		for _, err := range events {
			last = err
		}
		ended <- last
	})
	select {
	case err := <-ended:
		return err
	case <-r.ctx.Done():
		return errors.New("it does not end")
	}
}

// testCuts breaks the connection while commits are made: nothing is lost, and
// nothing comes twice.
func testCuts(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	if r.Cut == nil {
		r.stop()
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
func testForgetting(t testing.TB, start starter) {
	r := newTrial(t, start, watchcache.Options[string]{})
	if r.Forget == nil {
		r.stop()
		return
	}
	follower := Follow(t, mustWatch(t, r))
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
		if _, err := r.Cache.Watch(r.ctx, watchcache.WatchOptions[string]{Start: watchcache.After(hole)}); !errors.Is(err, watchcache.ErrExpired) {
			t.Errorf("a watch after %v, between %v and a listing at %v: %v, want ErrExpired", hole, before, at, err)
		}
	}
	state := map[string]string{}
	for item := range r.Cache.Snapshot().All() {
		state[item.Key] = item.Object
	}
	if !maps.Equal(state, r.state) {
		t.Errorf("the state after a listing is %v, want %v", state, r.state)
	}
	r.Cache.Shutdown(r.ctx)
	<-follower.Done()
	if err := follower.Err(); !errors.Is(err, watchcache.ErrClosed) && !errors.Is(err, watchcache.ErrExpired) {
		t.Errorf("a watcher that lived through a listing ended with: %v", err)
	}
	if errors.Is(follower.Err(), watchcache.ErrClosed) {
		for key, item := range follower.State() {
			if item.Object != r.state[key] {
				t.Errorf("a watcher that lived through a listing has %q for %q, want %q", item.Object, key, r.state[key])
			}
		}
		if len(follower.State()) != len(r.state) {
			t.Errorf("a watcher that lived through a listing has %d keys, want %d", len(follower.State()), len(r.state))
		}
	}
	r.stop()
}

func mustWatch(t testing.TB, r *trial) *watchcache.Watcher[string] {
	t.Helper()
	w, err := r.Cache.Watch(r.ctx, watchcache.WatchOptions[string]{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

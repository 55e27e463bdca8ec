package watchcachetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// exampleT is what a test has as its t.
type exampleT struct {
	testing.TB
	cleanup []func()
}

func (t *exampleT) Helper()           {}
func (t *exampleT) Cleanup(f func())  { t.cleanup = append(t.cleanup, f) }
func (t *exampleT) Error(args ...any) { fmt.Println(args...) }
func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanup) {
		f()
	}
	fmt.Println("ended")
}

// A test of whatever passes events on: here, of a cache itself.
func Example() {
	t := &exampleT{}
	defer t.end()
	ctx := context.Background()

	check := watchcachetest.NewChecker(watchcache.Options[int]{})
	cache, _ := watchcache.New(watchcache.Options[int]{})
	writer := watchcachetest.NewWriter(check, cache)
	writer.Put("a", 1)

	w, _ := cache.Watch(ctx, watchcache.WatchOptions[int]{})
	watched := check.Watcher("all", nil, watchcache.Position{})
	follower := watched.Follow(t, w)
	writer.Put("b", 2)

	cache.Shutdown(ctx) // lets watchers take what was committed
	<-follower.Done()
	watched.CaughtUp(cache.Position())
	check.Verify(t)
	fmt.Println(len(follower.State()))
	// Output:
	// 2
	// ended
}

func ExampleSource() {
	source := watchcachetest.NewSource[string]("backend")
	source.Put("motd", "hello")
	source.FailLists(1, watchcache.Terminal(errors.New("access denied"))) // the next call of List

	cache, _ := watchcache.New(watchcache.Options[string]{Mirror: true})
	defer cache.Close()
	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(cache.Run(ctx, source))

	var run sync.WaitGroup
	run.Go(func() { cache.Run(ctx, source) })
	fmt.Println(cache.WaitRevision(ctx, source.Put("motd", "good evening")))
	item, _ := cache.Get("motd")
	fmt.Println(item.Object, item.Revision, source.Calls().Lists)
	cancel()
	run.Wait()
	// Output:
	// access denied
	// <nil>
	// good evening 2 2
}

func ExampleCalls() {
	source := watchcachetest.NewSource[string]("backend")
	source.List(context.Background(), 0)
	fmt.Println(source.Calls().Lists, source.Calls().AtLeast)
	// Output: 1 [0]
}

func ExampleStreamingSource() {
	source := watchcachetest.NewSource[string]("backend")
	source.Put("motd", "hello")
	for event := range (watchcachetest.StreamingSource[string]{Source: source}).Stream(context.Background(), 0) {
		switch event.Kind {
		case watchcache.SourceItem:
			fmt.Println("item", event.Item.Key)
		case watchcache.SourceSynced:
			fmt.Println("synced at", event.At)
			source.Put("motd", "good evening")
		case watchcache.SourceCommit:
			fmt.Println("commit at", event.Commit.Revision)
			source.Cut(nil)
		}
	}
	// Output:
	// item motd
	// synced at backend:1
	// commit at 2
}

func ExampleRequestingSource() {
	source := watchcachetest.NewSource[string]("backend")
	source.ProgressOnRequest(true)
	source.Progress(41)
	requesting := watchcachetest.RequestingSource[string]{Source: source}

	cache, _ := watchcache.New(watchcache.Options[string]{Mirror: true})
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { cache.Run(ctx, requesting) })
	cache.WaitReady(ctx)
	source.Progress(42) // nobody is told, until somebody asks
	fmt.Println(cache.WaitRevision(ctx, 42))
	cancel()
	run.Wait()
	cache.Close()
	// Output: <nil>
}

func ExampleStreamingRequestingSource() {
	source := watchcachetest.NewSource[string]("backend")
	var offered watchcache.Source[string] = watchcachetest.StreamingRequestingSource[string]{Source: source}
	_, streams := offered.(watchcache.Streamer[string])
	_, requests := offered.(watchcache.ProgressRequester)
	fmt.Println(streams, requests)
	// Output: true true
}

// What was written and what was taken may come from anywhere: here it is told by
// hand.
func ExampleChecker() {
	at := func(revision uint64) watchcache.Position {
		return watchcache.Position{Epoch: "e", Revision: revision}
	}
	check := watchcachetest.NewChecker(watchcache.Options[string]{})
	check.Replaced(at(1), watchcache.Item[string]{Key: "a", Object: "x"})
	check.Committed(at(2), watchcache.Change[string]{Key: "a", Object: "y"})
	check.Committed(at(3), watchcache.Change[string]{Key: "a", Delete: true})

	w := check.Watcher("mine", nil, at(1))
	w.Took(watchcache.Event[string]{Type: watchcache.Deleted, Key: "a", Object: "y", Prev: "y", Revision: 3, Cause: watchcache.Removed})
	fmt.Println(check.Err())
	// Output:
	// watcher "mine" broke contract 1 (order, once, no gaps): an event was skipped
	// 	expected: Modified "a" at 2
	// 	got:      Deleted "a" at 3, Removed
	// 	before:   started after e:1
}

func ExampleViolation() {
	check := watchcachetest.NewChecker(watchcache.Options[string]{})
	check.Replaced(watchcache.Position{Epoch: "e", Revision: 1})
	check.Watcher("mine", nil, watchcache.Position{}).Ended(nil)

	var violation *watchcachetest.Violation
	if errors.As(check.Err(), &violation) {
		fmt.Println(violation.Watcher, violation.Contract, violation.Why)
	}
	// Output: mine 5 it ended without a reason
}

// A consumer that is not a loop over Events tells what it takes by hand.
func ExampleWatched() {
	cache, _ := watchcache.New(watchcache.Options[int]{})
	defer cache.Close()
	check := watchcachetest.NewChecker(watchcache.Options[int]{})
	writer := watchcachetest.NewWriter(check, cache)

	w, _ := cache.Watch(context.Background(), watchcache.WatchOptions[int]{Prefix: "user/"})
	users := func(key string, _ int) bool { return len(key) > 5 && key[:5] == "user/" }
	watched := check.Watcher("users", users, watchcache.Position{})
	writer.Put("user/1", 1)
	writer.Put("group/1", 1)
	for {
		event, ok, err := w.TryNext()
		if err != nil {
			watched.Ended(err)
			break
		}
		if !ok {
			watched.CaughtUp(cache.Position())
			w.Stop()
			continue
		}
		watched.Took(event)
		watched.Position(w.Position())
	}
	fmt.Println(check.Err())
	// Output: <nil>
}

func ExampleWriter() {
	cache, _ := watchcache.New(watchcache.Options[int]{Epoch: "e"})
	defer cache.Close()
	check := watchcachetest.NewChecker(watchcache.Options[int]{})
	writer := watchcachetest.NewWriter(check, cache)
	fmt.Println(writer.Put("a", 1))
	fmt.Println(writer.Delete("b"))
	fmt.Println(check.Err())
	// Output:
	// 1 <nil>
	// 0 watchcache: not found: "b"
	// <nil>
}

func ExampleFollower() {
	t := &exampleT{}
	defer t.end()
	ctx := context.Background()

	cache, _ := watchcache.New(watchcache.Options[int]{})
	cache.Put("a", 1)
	w, _ := cache.Watch(ctx, watchcache.WatchOptions[int]{})
	f := watchcachetest.Follow(t, w)
	cache.Put("a", 2)
	cache.Shutdown(ctx)
	<-f.Done()
	fmt.Println(f.State()["a"].Object, f.Synced(), f.Err())
	// Output:
	// 2 true watchcache: closed
	// ended
}

// The test of an adapter's module: here, of a source that this package has.
func ExampleRunConformance() {
	_ = func(t *testing.T) { // TestConformance
		watchcachetest.RunConformance(t, func(t testing.TB, opts watchcache.Options[string]) watchcachetest.Subject[string] {
			backend := watchcachetest.NewSource[string]("backend")
			backend.Progress(1)
			opts.Mirror = true
			cache, err := watchcache.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var run sync.WaitGroup
			run.Go(func() { cache.Run(ctx, backend) })
			t.Cleanup(func() {
				cancel()
				run.Wait()
				cache.Close()
			})
			return watchcachetest.Subject[string]{
				Cache: cache,
				Commit: func(changes ...watchcache.Change[string]) (uint64, error) {
					return backend.Commit(watchcache.Commit[string]{Changes: changes}), nil
				},
				Cut: func() { backend.Cut(nil) },
			}
		})
	}
}

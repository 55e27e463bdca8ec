package watchcache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/watchcache/watchcache"
)

type user struct{ Name, Team string }

// A watcher gets the state, then Synced, then every change.
func Example() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	users.Put("ann", user{"Ann", "red"})

	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{})
	users.Put("bob", user{"Bob", "blue"})
	for ev := range w.Events() {
		fmt.Printf("%v %q\n", ev.Type, ev.Key)
		if ev.Key == "bob" {
			break // leaving the loop stops the watcher
		}
	}
	// Output:
	// Added "ann"
	// Synced ""
	// Added "bob"
}

// Several changes at one revision are seen whole or not at all.
func ExampleCache_Apply() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	users.Put("ann", user{"Ann", "red"})
	revision, _ := users.Apply(watchcache.Commit[user]{Changes: []watchcache.Change[user]{
		{Key: "ann", Delete: true},
		{Key: "anna", Object: user{"Anna", "red"}},
	}})
	_, gone := users.Get("ann")
	fmt.Println(revision, !gone, users.Snapshot().Len())
	// Output: 2 true 1
}

// A client keeps a position, and resumes after it; or it learns that it cannot.
func ExampleAfter() {
	users, _ := watchcache.New(watchcache.Options[user]{Epoch: "demo", Capacity: 2})
	defer users.Close()
	users.Put("ann", user{})
	kept := users.Position()
	users.Put("bob", user{})

	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.After(kept)})
	ev, _ := w.Next(context.Background())
	fmt.Println(ev.Type, ev.Key)
	w.Stop()

	users.Put("cid", user{})
	users.Put("dan", user{}) // history keeps two events: that of bob is gone
	_, err := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.After(kept)})
	var expired *watchcache.ExpiredError
	if errors.As(err, &expired) {
		fmt.Println("start again from the state: the oldest is", expired.Oldest)
	}
	// Output:
	// Added bob
	// start again from the state: the oldest is demo:2
}

// A position has a text form that fits into a header, and into JSON.
func ExamplePosition() {
	text, _ := json.Marshal(watchcache.Position{Epoch: "eu/1", Revision: 42})
	position, err := watchcache.ParsePosition("eu%2F1:42")
	fmt.Println(string(text), position.Revision, err)
	// Output: "eu%2F1:42" 42 <nil>
}

// An index finds and watches objects by a value; who leaves it is Deleted there.
func ExampleWatchOptions() {
	users, _ := watchcache.New(watchcache.Options[user]{
		Indexes: map[string]func(string, user) []string{
			"team": func(_ string, u user) []string { return []string{u.Team} },
		},
	})
	defer users.Close()
	red := watchcache.IndexValue{Name: "team", Value: "red"}
	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.FromNow(), Index: red})
	users.Put("ann", user{"Ann", "red"})
	users.Put("bob", user{"Bob", "blue"})
	users.Put("ann", user{"Ann", "blue"})
	for range 2 {
		ev, _ := w.Next(context.Background())
		fmt.Println(ev.Type, ev.Cause, ev.Key, "is", ev.Object.Team)
	}
	w.Stop()
	// Output:
	// Added  ann is red
	// Deleted LeftFilter ann is blue
}

// A snapshot is the state at one revision, and stays so.
func ExampleSnapshot() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	for _, name := range []string{"ann", "bob", "cid"} {
		users.Put(name, user{Name: name})
	}
	before := users.Snapshot()
	users.Delete("bob")
	fmt.Println(before.Len(), users.Snapshot().Len(), before.Count("b", ""))
	for item := range before.RangeBackward("", "c") {
		fmt.Println(item.Key, item.Revision)
	}
	past, _ := users.SnapshotAt(1)
	fmt.Println(past.Len())
	// Output:
	// 3 2 2
	// bob 2
	// ann 1
	// 1
}

// A connection's write deadline hangs on Done, so that a write which nobody takes
// ends with the eviction, and with it the handler.
func ExampleWatcher_Done() {
	serve := func(conn net.Conn, w *watchcache.Watcher[user]) error {
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-w.Done(): // also at a normal end: leave time for the last words
				conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			case <-over:
			}
		}()
		for ev, err := range w.Events() {
			if err == nil {
				_, err = fmt.Fprintln(conn, ev.Type, ev.Key)
			}
			if err != nil {
				return errors.Join(err, w.Err())
			}
		}
		return nil // not reached: the last pair is an error
	}

	users, _ := watchcache.New(watchcache.Options[user]{
		Stall: watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: 20 * time.Millisecond}},
	})
	defer users.Close()
	users.Put("ann", user{"Ann", "red"})
	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{})
	conn, _ := net.Pipe() // whose other end never reads
	err := serve(conn, w)
	fmt.Println(errors.Is(err, watchcache.ErrStalled), errors.Is(err, os.ErrDeadlineExceeded))
	// Output: true true
}

// Since is history as a run of events.
func ExampleInterval() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	users.Put("ann", user{Team: "red"})
	users.Put("ann", user{Team: "blue"})
	interval, _ := users.Since(1)
	for ev, err := range interval.All() {
		fmt.Println(ev.Type, ev.Prev.Team, "to", ev.Object.Team, err)
	}
	// Output: Modified red to blue <nil>
}

// Batches are whole commits.
func ExampleWatcher_Batches() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.FromNow()})
	users.Apply(watchcache.Commit[user]{Changes: []watchcache.Change[user]{{Key: "ann"}, {Key: "bob"}}})
	for batch := range w.Batches() {
		fmt.Println(batch.Revision, len(batch.Events))
		break
	}
	// Output: 1 2
}

// Pipe feeds a channel of another type, for code that selects.
func ExamplePipe() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{})
	names := watchcache.Pipe(w, 8, func(ev watchcache.Event[user]) (string, bool) {
		return ev.Object.Name, ev.Type == watchcache.Added
	})
	users.Put("ann", user{Name: "Ann"})
	select {
	case name := <-names:
		fmt.Println(name)
	case <-time.After(time.Minute):
	}
	w.Stop()
	for range names { // closed: Err has the reason
	}
	fmt.Println(w.Err())
	// Output:
	// Ann
	// watchcache: watcher stopped
}

// A policy of one's own: patience for one watcher, a fresh snapshot for the rest.
func ExampleStallFunc() {
	policy := watchcache.StallFunc(watchcache.StallLimits{Lag: 2}, func(s watchcache.Stall) watchcache.Verdict {
		if s.Name == "audit" && !s.Overrun {
			return watchcache.VerdictWait
		}
		return watchcache.VerdictResync
	})
	users, _ := watchcache.New(watchcache.Options[user]{Stall: policy})
	defer users.Close()
	audit, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.FromNow(), Name: "audit"})
	page, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.FromNow(), Name: "page"})
	users.Put("ann", user{})
	users.Put("bob", user{})
	for _, w := range []*watchcache.Watcher[user]{audit, page} {
		ev, _ := w.Next(context.Background())
		fmt.Println(ev.Type, ev.Key)
		w.Stop()
	}
	// Output:
	// Added ann
	// Reset
}

// feed is a source: here one that lists two users, and then tells of a third.
type feed struct{}

func (feed) List(context.Context, uint64) (watchcache.Position, iter.Seq2[watchcache.Item[user], error], error) {
	return watchcache.Position{Epoch: "feed", Revision: 10}, func(yield func(watchcache.Item[user], error) bool) {
		_ = yield(watchcache.Item[user]{Key: "ann", Revision: 4}, nil) && yield(watchcache.Item[user]{Key: "bob", Revision: 9}, nil)
	}, nil
}

func (feed) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[user], error] {
	return func(yield func(watchcache.SourceEvent[user], error) bool) {
		commit := watchcache.Commit[user]{Revision: after.Revision + 1, Changes: []watchcache.Change[user]{{Key: "cid"}}}
		if yield(watchcache.CommitEvent(commit), nil) {
			<-ctx.Done()
		}
	}
}

// Run keeps a mirror like its source.
func ExampleSource() {
	users, _ := watchcache.New(watchcache.Options[user]{Mirror: true})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- users.Run(ctx, feed{}) }()
	users.WaitReady(ctx)
	users.WaitRevision(ctx, 11)
	status, _ := users.Status()
	fmt.Println(users.Position(), users.Snapshot().Len(), status.Connected)
	cancel()
	fmt.Println(<-ended)
	users.Close()
	// Output:
	// feed:11 3 true
	// context canceled
}

// inventory is a source that can only be asked for all that it has, such as a file
// or a REST service: its Watch looks every so often whether there is something new.
type inventory struct {
	version atomic.Uint64 // a file's would be counted up when its time or hash changes
	every   time.Duration
}

func (s *inventory) List(context.Context, uint64) (watchcache.Position, iter.Seq2[watchcache.Item[user], error], error) {
	at := watchcache.Position{Revision: s.version.Load()} // before reading: what is newer than that is found by the next look
	return at, func(yield func(watchcache.Item[user], error) bool) {
		yield(watchcache.Item[user]{Key: "ann", Object: user{Team: fmt.Sprint("team ", at.Revision)}}, nil)
	}, nil
}

func (s *inventory) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[user], error] {
	return func(yield func(watchcache.SourceEvent[user], error) bool) {
		for {
			select {
			case <-time.After(s.every):
			case <-ctx.Done():
				return
			}
			if s.version.Load() != after.Revision { // list anew, without a backoff
				yield(watchcache.SourceEvent[user]{}, watchcache.RetryAfter(watchcache.ErrExpired, 0))
				return
			}
			if !yield(watchcache.ProgressEvent[user](after.Revision), nil) { // a sign of life
				return
			}
		}
	}
}

// A source that can only list ends its Watch when there is something new. Watchers
// get the difference.
func ExampleRetryAfter() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	users, _ := watchcache.New(watchcache.Options[user]{Mirror: true})
	defer users.Close()
	source := &inventory{every: time.Millisecond}
	source.version.Store(1)
	go users.Run(ctx, source)
	users.WaitReady(ctx)
	w, _ := users.Watch(ctx, watchcache.WatchOptions[user]{})
	source.version.Store(2)
	for ev := range w.Events() {
		if ev.Type == watchcache.Modified {
			fmt.Println(ev.Key, "was in", ev.Prev.Team, "and is in", ev.Object.Team)
			break
		}
	}
	// Output:
	// ann was in team 1 and is in team 2
}

// Stats are for operators.
func ExampleCache_Stats() {
	users, _ := watchcache.New(watchcache.Options[user]{})
	defer users.Close()
	w, _ := users.Watch(context.Background(), watchcache.WatchOptions[user]{Start: watchcache.FromNow(), Name: "page"})
	users.Put("ann", user{})
	for info := range users.Watchers() {
		fmt.Println(info.Name, info.Phase, "lag", info.Lag)
	}
	w.Stop()
	s := users.Stats()
	fmt.Println(s.Objects, s.History, s.Watchers, s.Endings.Stopped)
	// Output:
	// page streaming lag 1
	// 1 1 0 1
}

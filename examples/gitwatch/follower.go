package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/watchcache/watchcache"
)

type (
	event   = watchcache.Event[string]
	watcher = watchcache.Watcher[string]
)

// follower is one watcher's consumer, with the state that it rebuilt.
type follower struct {
	name, does string
	prefix     string // what it selects
	cache      *watchcache.Cache[string]
	checkpoint func(revision uint64) bool
	started    func() // told once, when it has its first watcher or none

	state    map[string]string
	pending  []event             // of a commit that is not complete yet
	position watchcache.Position // at which state is complete; zero: at none
	events   int
	watchers int  // that it needed
	expired  int  // positions, after which it started from the state again
	resyncs  int  // fresh snapshots on the same watcher
	refused  bool // err is that of Watch, not of the stream
	err      error
	passed   map[uint64]string // digests at checkpoints
}

// followers are all that follow a replay.
type followers struct {
	all     []*follower
	running sync.WaitGroup
	started sync.WaitGroup
	// away is held by a follower that has left and is not back, and in the end by
	// gather, for good.
	away chan struct{}
}

func (fs *followers) wait() { fs.running.Wait() }

// gather waits until everybody has a watcher, and lets nobody leave any more.
func (fs *followers) gather() {
	fs.started.Wait()
	fs.away <- struct{}{}
}

// startFollowers starts a follower of each kind.
func startFollowers(ctx context.Context, cache *watchcache.Cache[string], h history, s settings) *followers {
	fs := &followers{away: make(chan struct{}, 1)}
	start := func(name, does, prefix string, follow func(*follower)) {
		fs.started.Add(1)
		f := &follower{
			name: name, does: does, prefix: prefix, cache: cache, checkpoint: h.checkpoint, started: sync.OnceFunc(fs.started.Done),
			state: map[string]string{}, passed: map[uint64]string{},
		}
		fs.all = append(fs.all, f)
		fs.running.Go(func() {
			defer f.started()
			follow(f)
		})
	}
	evict := watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: s.stall, StreamIdle: s.stall}}
	resync := watchcache.Resync(evict)
	options := func(f *follower, policy watchcache.StallPolicy) watchcache.WatchOptions[string] {
		return watchcache.WatchOptions[string]{Name: f.name, Prefix: f.prefix, Stall: policy}
	}
	part := func(n uint64) uint64 { return max(1, h.last()/n) }

	start("fast", "reads as fast as it can", "", func(f *follower) {
		f.follow(ctx, options(f, evict), nil)
	})
	start("slow", "needs a quarter longer than the replay, but moves", "", func(f *follower) {
		each := min(max(s.duration*5/4/time.Duration(h.last()), 100*time.Microsecond), s.stall/4)
		f.follow(ctx, options(f, evict), func(ev event, _ *watcher) bool {
			return ev.More || ev.Initial || pause(ctx, each)
		})
	})
	start("resuming", "leaves at random, and resumes after its position", "", func(f *follower) {
		f.resume(ctx, options(f, evict), fs.away, s.duration)
	})
	start("prefix", fmt.Sprintf("selects the keys that begin with %q; bookmarks move its position on", s.prefix), s.prefix, func(f *follower) {
		o := options(f, evict)
		o.Bookmarks = 500 * time.Millisecond
		f.follow(ctx, o, nil)
	})
	start("stalled-initial", "takes one event of the initial state, and no more", "", func(f *follower) {
		if f.err = cache.WaitRevision(ctx, part(3)); f.err != nil {
			return
		}
		f.follow(ctx, options(f, evict), func(_ event, w *watcher) bool {
			<-w.Done() // its consumer sits here; the snapshot is free when its policy says so
			return true
		})
	})
	start("stalled-stream", "streams for a while, and then takes no more", "", func(f *follower) {
		f.follow(ctx, options(f, evict), func(ev event, w *watcher) bool {
			if ev.Revision >= part(3) {
				<-w.Done()
			}
			return true
		})
	})
	start("resyncing", "sleeps too long once; its policy is Resync, not Evict", "", func(f *follower) {
		slept := false
		f.follow(ctx, options(f, resync), func(ev event, _ *watcher) bool {
			if !slept && ev.Type < watchcache.Synced && ev.Revision >= part(4) {
				slept = true
				return pause(ctx, s.stall+s.stall/2)
			}
			return true
		})
	})
	return fs
}

// follow watches until the end. after is called with each event, after it was
// applied; it returns false to leave.
func (f *follower) follow(ctx context.Context, o watchcache.WatchOptions[string], after func(event, *watcher) bool) {
	if w := f.watch(ctx, o); w != nil {
		f.read(w, after)
	}
}

// watch starts a watcher; nil: err says why there is none.
func (f *follower) watch(ctx context.Context, o watchcache.WatchOptions[string]) *watcher {
	var w *watcher
	w, f.err = f.cache.Watch(ctx, o)
	if f.refused = f.err != nil; f.refused {
		return nil
	}
	f.started()
	f.watchers++
	f.pending = f.pending[:0] // of a commit that comes again
	return w
}

func (f *follower) read(w *watcher, after func(event, *watcher) bool) {
	for ev, err := range w.Events() {
		if err != nil {
			f.err = err
			return
		}
		f.apply(ev)
		f.position, _ = w.Position()
		if after != nil && !after(ev, w) {
			break
		}
	}
	f.err = w.Err()
}

// resume follows with many watchers, each of which takes over where the last left.
// It holds away from when it leaves until it is back.
func (f *follower) resume(ctx context.Context, o watchcache.WatchOptions[string], away chan struct{}, pace time.Duration) {
	for left := false; ; {
		o.Start = watchcache.FromState()
		if !f.position.IsZero() {
			o.Start = watchcache.After(f.position)
		}
		w := f.watch(ctx, o)
		if left {
			left = false
			<-away
		}
		if w != nil {
			stay := 1 + rand.IntN(200)
			f.read(w, func(ev event, _ *watcher) bool {
				stay--
				// Where a commit is complete, the state is that of its position. If it
				// left elsewhere, the commit would come again whole.
				if stay > 0 || ev.More || f.position.IsZero() {
					return true
				}
				select {
				case away <- struct{}{}:
					left = true
					return false
				default:
					return true // the cache is about to be shut down
				}
			})
		}
		switch {
		case left:
			pause(ctx, absence(pace))
		case errors.Is(f.err, watchcache.ErrExpired), errors.Is(f.err, watchcache.ErrLagged):
			f.expired++
			f.position = watchcache.Position{}
			clear(f.state)
		default:
			return
		}
	}
}

// absence is how long to stay away: mostly hardly, and sometimes so long that a
// short history has moved on.
func absence(pace time.Duration) time.Duration {
	if rand.IntN(20) == 0 {
		pace *= 50
	}
	return rand.N(pace/500 + 1)
}

// apply brings a commit into the state when its last event has come.
func (f *follower) apply(ev event) {
	f.events++
	f.pending = append(f.pending, ev)
	if ev.More {
		return
	}
	for _, ev := range f.pending {
		switch ev.Type {
		case watchcache.Added, watchcache.Modified:
			f.state[ev.Key] = ev.Object
		case watchcache.Deleted:
			delete(f.state, ev.Key)
		case watchcache.Reset:
			f.resyncs++
			clear(f.state)
		}
	}
	f.pending = f.pending[:0]
	if !ev.Initial && f.prefix == "" && f.checkpoint(ev.Revision) {
		f.passed[ev.Revision] = digest(f.state)
	}
}

// drained reports whether it got everything, and was then ended with the cache.
func (f *follower) drained(shutdown error) bool {
	return shutdown == nil && !f.refused && errors.Is(f.err, watchcache.ErrClosed)
}

// check compares the rebuilt state with the truth: at the checkpoints that it
// passed, at its position, and, of one that has everything, at the end.
func (f *follower) check(ctx context.Context, truth *truths, everything bool) (verdict string, err error) {
	for revision, got := range f.passed {
		want, err := truth.at(ctx, revision)
		if err != nil {
			return "", err
		}
		if got != digest(want) {
			return "", fmt.Errorf("%w: %s passed the checkpoint at revision %d with another state", errDifferent, f.name, revision)
		}
	}
	if f.position.IsZero() {
		if everything {
			return "", fmt.Errorf("%w: %s has no position, although it has everything", errDifferent, f.name)
		}
		return "no position yet", nil
	}
	at := []uint64{f.position.Revision}
	if everything {
		at = append(at, truth.last())
	}
	for _, revision := range at {
		all, err := truth.at(ctx, revision)
		if err != nil {
			return "", err
		}
		want := map[string]string{}
		for path, hash := range all {
			if strings.HasPrefix(path, f.prefix) {
				want[path] = hash
			}
		}
		if !maps.Equal(f.state, want) {
			return "", fmt.Errorf("%w: %s at position %v has %d paths; revision %d has %d", errDifferent, f.name, f.position, len(f.state), revision, len(want))
		}
	}
	verdict = fmt.Sprintf("true at %d", f.position.Revision)
	if n := len(f.passed); n > 0 {
		verdict += " and at " + count(n, "checkpoint")
	}
	return verdict, nil
}

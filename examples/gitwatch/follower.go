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

// follower is one watcher's consumer, with the state that it rebuilt.
type follower struct {
	name, does string
	prefix     string // what it selects
	cache      *watchcache.Cache[string]

	state    map[string]string
	pending  []watchcache.Event[string] // of a commit that is not complete yet
	position watchcache.Position        // at which state is complete; zero: at none
	events   int
	starts   int // watchers that it needed
	resets   int // fresh snapshots on the same watcher
	err      error
	passed   map[uint64]string // digests at checkpoints
}

// followers are all that follow a replay.
type followers struct {
	all []*follower
	wg  sync.WaitGroup
}

func (f *followers) wait() { f.wg.Wait() }

// startFollowers starts a follower of each kind.
func startFollowers(ctx context.Context, cache *watchcache.Cache[string], h history, s settings) *followers {
	fs := new(followers)
	start := func(name, does, prefix string, follow func(*follower)) {
		f := &follower{name: name, does: does, prefix: prefix, cache: cache, state: map[string]string{}, passed: map[uint64]string{}}
		fs.all = append(fs.all, f)
		fs.wg.Go(func() { follow(f) })
	}
	evict := watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: s.stall, StreamIdle: s.stall}}
	resync := watchcache.Resync(evict)
	options := func(name string, policy watchcache.StallPolicy) watchcache.WatchOptions[string] {
		return watchcache.WatchOptions[string]{Name: name, Stall: policy}
	}

	start("fast", "reads as fast as it can", "", func(f *follower) {
		f.follow(ctx, options(f.name, evict), h, nil)
	})
	start("slow", "pauses after each commit, and moves", "", func(f *follower) {
		f.follow(ctx, options(f.name, evict), h, func(ev watchcache.Event[string], _ *watchcache.Watcher[string]) bool {
			return ev.More || ev.Initial || pause(ctx, 100*time.Microsecond)
		})
	})
	start("resuming", "leaves at random, and resumes at its position", "", func(f *follower) {
		f.resume(ctx, options(f.name, evict), h)
	})
	start("prefix", "selects "+s.prefix, s.prefix, func(f *follower) {
		o := options(f.name, evict)
		o.Prefix = s.prefix
		f.follow(ctx, o, h, nil)
	})
	start("stalled at first", "takes one initial event, and no more", "", func(f *follower) {
		if cache.WaitRevision(ctx, max(1, h.last()/3)) != nil {
			return
		}
		f.follow(ctx, options(f.name, evict), h, func(_ watchcache.Event[string], w *watchcache.Watcher[string]) bool {
			<-w.Done() // its consumer sits here; the snapshot is free when its policy says so
			return true
		})
	})
	start("stalled later", "streams, and then takes no more", "", func(f *follower) {
		f.follow(ctx, options(f.name, evict), h, func(ev watchcache.Event[string], w *watchcache.Watcher[string]) bool {
			if ev.Revision >= max(1, h.last()/3) {
				<-w.Done()
			}
			return true
		})
	})
	start("resyncing", "sleeps too long once, and gets a fresh snapshot", "", func(f *follower) {
		slept := false
		f.follow(ctx, options(f.name, resync), h, func(ev watchcache.Event[string], _ *watchcache.Watcher[string]) bool {
			if !slept && ev.Type < watchcache.Synced && ev.Revision >= max(1, h.last()/4) {
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
func (f *follower) follow(ctx context.Context, o watchcache.WatchOptions[string], h history, after func(watchcache.Event[string], *watchcache.Watcher[string]) bool) {
	w, err := f.cache.Watch(ctx, o)
	if err != nil {
		f.err = err
		return
	}
	f.starts++
	f.pending = f.pending[:0] // of a commit that comes again
	for ev, err := range w.Events() {
		if err != nil {
			f.err = err
			return
		}
		f.apply(ev, h)
		f.position, _ = w.Position()
		if after != nil && !after(ev, w) {
			break
		}
	}
	f.err = w.Err()
}

// resume follows with many watchers, each of which takes over where the last left.
func (f *follower) resume(ctx context.Context, o watchcache.WatchOptions[string], h history) {
	for {
		o.Start = watchcache.FromState()
		if !f.position.IsZero() {
			o.Start = watchcache.After(f.position)
		}
		left := 1 + rand.IntN(200)
		f.follow(ctx, o, h, func(ev watchcache.Event[string], _ *watchcache.Watcher[string]) bool {
			left--
			// Where a commit is complete, the state is that of its position. If it
			// left elsewhere, the commit would come again whole.
			return left > 0 || ev.More || f.position.IsZero()
		})
		switch {
		case errors.Is(f.err, watchcache.ErrStopped): // by itself
		case errors.Is(f.err, watchcache.ErrExpired), errors.Is(f.err, watchcache.ErrLagged):
			f.position = watchcache.Position{}
			clear(f.state)
		default:
			return
		}
	}
}

// apply brings a commit into the state when its last event has come.
func (f *follower) apply(ev watchcache.Event[string], h history) {
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
			f.resets++
			clear(f.state)
		}
	}
	f.pending = f.pending[:0]
	if !ev.Initial && f.prefix == "" && h.checkpoint(ev.Revision) {
		f.passed[ev.Revision] = digest(f.state)
	}
}

// errDifferent is a state that is not the truth.
var errDifferent = errors.New("not the truth")

// check compares the rebuilt state with the truth at its position.
func (f *follower) check(ctx context.Context, h history) (verdict string, err error) {
	for revision, got := range f.passed {
		want, err := h.truth(ctx, revision)
		if err != nil {
			return "", err
		}
		if got != digest(want) {
			return "", fmt.Errorf("%w: %s at revision %d", errDifferent, f.name, revision)
		}
	}
	if f.position.IsZero() {
		return "no position yet", nil
	}
	want, err := h.truth(ctx, f.position.Revision)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(want, func(path, _ string) bool { return !strings.HasPrefix(path, f.prefix) })
	if digest(f.state) != digest(want) {
		return "", fmt.Errorf("%w: %s has %d paths at revision %d, of %d", errDifferent, f.name, len(f.state), f.position.Revision, len(want))
	}
	verdict = fmt.Sprintf("true at %d", f.position.Revision)
	if n := len(f.passed); n > 0 {
		verdict += fmt.Sprintf(" and %d checkpoints", n)
	}
	return verdict, nil
}

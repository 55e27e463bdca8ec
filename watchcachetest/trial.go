package watchcachetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// trial is one subject under test, and the checker that knows what was written.
type trial struct {
	testing.TB
	Subject
	ctx   context.Context
	check *Checker[string]
	rest  sync.WaitGroup // consumers
	stop  context.CancelFunc

	mu      sync.Mutex
	seen    *sync.Cond // a consumer got further
	state   map[string]string
	log     []logged
	serial  int
	written uint64 // the newest revision
}

// logged is one change as it was made.
type logged struct {
	revision      uint64
	key           string
	before, after string // "": not there
}

type selects = func(key, object string) bool

// last returns the newest revision that concerns a selection.
func (r *trial) last(selects selects) (revision uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.log {
		if selects == nil || l.before != "" && selects(l.key, l.before) || l.after != "" && selects(l.key, l.after) {
			revision = l.revision
		}
	}
	return revision
}

func newTrial(t testing.TB, start starter, opts watchcache.Options[string]) *trial {
	t.Helper()
	r := &trial{TB: t, Subject: start(t, opts), check: NewChecker(opts), state: map[string]string{}}
	r.seen = sync.NewCond(&r.mu)
	r.ctx, r.stop = context.WithTimeout(context.Background(), patience)
	if r.Commit == nil {
		r.Commit = func(changes ...watchcache.Change[string]) (uint64, error) {
			return r.Cache.Apply(watchcache.Commit[string]{Changes: changes})
		}
	}
	if r.Watch == nil {
		r.Watch = func(ctx context.Context, opts watchcache.WatchOptions[string]) (iter.Seq2[watchcache.Event[string], error], error) {
			w, err := r.Cache.Watch(ctx, opts)
			if err != nil {
				return nil, err
			}
			return w.Events(), nil
		}
	}
	if err := r.Cache.WaitReady(r.ctx); err != nil {
		t.Fatalf("the cache does not become ready: %v", err)
	}
	if n := r.Cache.Snapshot().Len(); n != 0 {
		t.Fatalf("the state has %d keys at the start, want none", n)
	}
	r.check.Began(r.Cache.Snapshot())
	return r
}

// commit changes some keys, in the way that n says, and tells the checker.
func (r *trial) commit(n int) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []watchcache.Change[string]
	var log []logged
	for i := range 1 + n%3 {
		ch := watchcache.Change[string]{Key: fmt.Sprintf("%s/%d", []string{"red", "blue"}[n/2%2], (n+7*i)%5)}
		before := r.state[ch.Key]
		if ch.Delete = before != "" && n%4 == 3; ch.Delete {
			delete(r.state, ch.Key)
		} else {
			r.serial++
			ch.Object = fmt.Sprintf("%d %s", r.serial, []string{"even", "odd"}[(n+i)%2])
			r.state[ch.Key] = ch.Object
		}
		log = append(log, logged{key: ch.Key, before: before, after: ch.Object})
		if changes = append(changes, ch); r.Single {
			break
		}
	}
	revision, err := r.Commit(changes...)
	if err != nil {
		r.Errorf("commit: %v", err)
		return
	}
	if revision <= r.written {
		r.Errorf("commit at %d, after %d", revision, r.written)
	}
	r.written = revision
	for i := range log {
		log[i].revision = revision
	}
	r.log = append(r.log, log...)
	r.check.Committed(watchcache.Position{Epoch: r.Cache.Position().Epoch, Revision: revision}, changes...)
}

// caughtUp waits until the cache has everything that was written.
func (r *trial) caughtUp() watchcache.Position {
	r.Helper()
	r.mu.Lock()
	written := r.written
	r.mu.Unlock()
	if err := r.Cache.WaitRevision(r.ctx, written); err != nil {
		r.Fatalf("the cache does not get to revision %d: %v", written, err)
	}
	return r.Cache.Position()
}

// consumer is one watch of the subject.
type consumer struct {
	r       *trial
	selects selects
	watched *Watched[string]
	cancel  context.CancelCauseFunc
	done    chan struct{}

	// Guarded by trial.mu.
	synced bool   // there is no initial state to come
	at     uint64 // everything up to there was taken
	err    error
	over   bool
}

var errEnough = errors.New("watchcachetest: enough")

// follow watches with the state, or after a position that is not zero, and tells
// the checker of all that comes, until the consumer is ended.
func (r *trial) follow(name string, opts watchcache.WatchOptions[string], after watchcache.Position, selects selects) *consumer {
	r.Helper()
	ctx, cancel := context.WithCancelCause(r.ctx)
	c := &consumer{r: r, selects: selects, cancel: cancel, done: make(chan struct{})}
	if !after.IsZero() {
		opts.Start, c.synced, c.at = watchcache.After(after), true, after.Revision
	}
	events, err := r.Watch(ctx, opts)
	if err != nil {
		r.Errorf("watch %s: %v", name, err)
		events = func(func(watchcache.Event[string], error) bool) {}
	}
	c.watched = r.check.Watcher(name, selects, after)
	r.rest.Go(func() {
		defer close(c.done)
		c.take(events)
	})
	return c
}

func (c *consumer) take(events iter.Seq2[watchcache.Event[string], error]) {
	defer func() {
		c.r.mu.Lock()
		defer c.r.mu.Unlock()
		c.over = true
		c.r.seen.Broadcast()
	}()
	for ev, err := range events {
		c.r.mu.Lock()
		if err != nil {
			c.err = err
			c.watched.Ended(err)
		} else {
			c.watched.Took(ev)
			if ev.Type == watchcache.Synced || ev.Type == watchcache.Reset {
				c.synced = ev.Type == watchcache.Synced
			}
			if !ev.Initial && !ev.More && ev.Type != watchcache.Reset {
				c.at = ev.Revision
			}
		}
		c.r.seen.Broadcast()
		c.r.mu.Unlock()
	}
}

// await waits until the consumer has taken everything that was written.
func (c *consumer) await() {
	c.r.Helper()
	last := c.r.last(c.selects)
	stop := context.AfterFunc(c.r.ctx, func() {
		c.r.mu.Lock()
		defer c.r.mu.Unlock()
		c.r.seen.Broadcast()
	})
	defer stop()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for (!c.synced || c.at < last) && !c.over {
		if c.r.ctx.Err() != nil {
			c.r.Errorf("revision %d did not come; the last was %d, after Synced: %v", last, c.at, c.synced)
			return
		}
		c.r.seen.Wait()
	}
}

// end ends the consumer, and tells whether its stream says why it ended.
func (c *consumer) end() {
	c.r.Helper()
	c.cancel(errEnough)
	select {
	case <-c.done:
	case <-c.r.ctx.Done():
		c.r.Error("a stream does not end with its context")
		return
	}
	switch {
	case c.err == nil:
		c.r.Error("a stream ended without an error")
	case !errors.Is(c.err, errEnough):
		c.r.Errorf("a stream that was ended by its context gave an error that is not, by errors.Is, the context's cause %q: %v (%T)", errEnough, c.err, c.err)
	}
}

// finish has each consumer take the last commit, ends it, and compares
// everything.
func (r *trial) finish(consumers ...*consumer) {
	r.Helper()
	at := r.caughtUp()
	for _, c := range consumers {
		c.await()
		c.watched.CaughtUp(at)
		c.end()
	}
	r.check.Snapshot(r.Cache.Snapshot())
	r.check.Verify(r.TB)
	r.nobodyLeft()
}

// nobodyLeft waits until the cache has no watcher.
func (r *trial) nobodyLeft() {
	r.Helper()
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		r.rest.Wait()
	}()
	select {
	case <-rested:
	case <-r.ctx.Done():
		r.Error("not all streams have ended")
	}
	for r.Cache.Stats().Watchers > 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-r.ctx.Done():
			r.Errorf("%d watchers are left", r.Cache.Stats().Watchers)
			r.stop()
			return
		}
	}
	r.stop()
}

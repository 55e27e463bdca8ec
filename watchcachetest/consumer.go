package watchcachetest

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/watchcache/watchcache"
)

// consumer is one watch of a trial's subject.
type consumer[T any] struct {
	r       *trial[T]
	name    string
	selects selects
	watched *Watched[string]
	cancel  context.CancelCauseFunc
	done    chan struct{}

	// A consumer that pauses closes paused when it has its first event, and goes on
	// when resume is closed.
	paused, resume chan struct{}

	// Guarded by trial.mu.
	synced   bool   // there is no initial state to come
	at       uint64 // everything up to there was taken
	began    uint64 // Synced's revision
	bookmark uint64 // the last one's
	err      error
	over     bool
}

var errEnough = errors.New("watchcachetest: enough")

// follow watches with a selection, and tells the checker of all that comes, until
// the consumer is ended. Where it starts tells opts.Start, and after, if that is not
// with the state.
func (r *trial[T]) follow(name string, opts watchcache.WatchOptions[string], after watchcache.Position, selects selects) *consumer[T] {
	r.Helper()
	c := r.prepare(name, opts, after, selects)
	c.start(opts)
	return c
}

// pausing is follow of everything, with a consumer that pauses in its first event.
func (r *trial[T]) pausing(name string, opts watchcache.WatchOptions[string]) *consumer[T] {
	r.Helper()
	c := r.prepare(name, opts, watchcache.Position{}, nil)
	c.paused, c.resume = make(chan struct{}), make(chan struct{})
	c.start(opts)
	return c
}

func (r *trial[T]) prepare(name string, opts watchcache.WatchOptions[string], after watchcache.Position, selects selects) *consumer[T] {
	c := &consumer[T]{r: r, name: name, selects: selects, done: make(chan struct{})}
	c.synced, c.at = !after.IsZero(), after.Revision
	c.watched = r.check.Watcher(name, selects, after)
	if opts.Coalesce {
		c.watched.Coalesced()
	}
	return c
}

func (c *consumer[T]) start(opts watchcache.WatchOptions[string]) {
	c.r.Helper()
	var ctx context.Context
	ctx, c.cancel = context.WithCancelCause(c.r.ctx)
	events, err := c.r.watch(ctx, opts)
	if err != nil {
		c.r.Errorf("%s: watch: %v", c.name, err)
		events = func(func(watchcache.Event[string], error) bool) {}
	}
	c.r.rest.Go(func() {
		defer close(c.done)
		c.take(events)
	})
}

func (c *consumer[T]) take(events iter.Seq2[watchcache.Event[string], error]) {
	defer func() {
		c.r.mu.Lock()
		defer c.r.mu.Unlock()
		c.over = true
		c.r.seen.Broadcast()
	}()
	pausing := c.paused != nil
	for ev, err := range events {
		c.note(ev, err)
		if pausing {
			pausing = false
			close(c.paused)
			select {
			case <-c.resume:
			case <-c.r.ctx.Done():
			}
		}
	}
}

func (c *consumer[T]) note(ev watchcache.Event[string], err error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	defer c.r.seen.Broadcast()
	if err != nil {
		c.err = err
		c.watched.Ended(err)
		return
	}
	c.watched.Took(ev)
	switch ev.Type {
	case watchcache.Synced:
		c.synced, c.began = true, ev.Revision
	case watchcache.Reset:
		c.synced = false
	case watchcache.Bookmark:
		c.bookmark = ev.Revision
	}
	if !ev.Initial && !ev.More && ev.Type != watchcache.Reset {
		c.at = ev.Revision
	}
}

// hasPaused waits until a consumer that pauses does.
func (c *consumer[T]) hasPaused() bool {
	c.r.Helper()
	select {
	case <-c.paused:
		return true
	case <-c.done:
		c.r.Errorf("%s: it ended at once: %v", c.name, c.err)
	case <-c.r.ctx.Done():
		c.r.Errorf("%s: nothing comes", c.name)
	}
	return false
}

// until waits until something is so, or the consumer's stream has ended or broken the
// contract for good: the checker will tell. met is called with trial.mu held. It
// returns false, and tells what is otherwise, if the time is up.
func (c *consumer[T]) until(otherwise string, met func() bool) bool {
	c.r.Helper()
	stop := context.AfterFunc(c.r.ctx, func() {
		c.r.mu.Lock()
		defer c.r.mu.Unlock()
		c.r.seen.Broadcast()
	})
	defer stop()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for !met() && !c.over && !c.watched.broken() {
		if c.r.ctx.Err() != nil {
			c.r.Errorf("%s: %s; it has all up to revision %d, after Synced: %v, and a bookmark at %d", c.name, otherwise, c.at, c.synced, c.bookmark)
			return false
		}
		c.r.seen.Wait()
	}
	return true
}

// await waits until the consumer has taken everything that was written.
func (c *consumer[T]) await() {
	c.r.Helper()
	last := c.r.last(c.selects)
	c.until(fmt.Sprintf("revision %d did not come", last), func() bool { return c.synced && c.at >= last })
}

// hasEnded waits for the end of a stream. It tells what is otherwise if the time is up.
func (c *consumer[T]) hasEnded(otherwise string) bool {
	c.r.Helper()
	select {
	case <-c.done:
		return true
	case <-c.r.ctx.Done():
		c.r.Errorf("%s: %s", c.name, otherwise)
		return false
	}
}

// end ends the consumer, and tells whether its stream says why it ended.
func (c *consumer[T]) end() {
	c.r.Helper()
	c.cancel(errEnough)
	switch {
	case !c.hasEnded("a stream does not end with its context"):
	case c.err == nil:
		c.r.Errorf("%s: a stream ended without an error", c.name)
	case !errors.Is(c.err, errEnough):
		c.r.Errorf("%s: a stream that was ended by its context gave an error that is not, by errors.Is, the context's cause %q: %v (%T)", c.name, errEnough, c.err, c.err)
	}
}

// endedWith waits for a stream to end by itself, and compares the reason.
func (c *consumer[T]) endedWith(want error) {
	c.r.Helper()
	defer c.cancel(errEnough)
	if c.hasEnded("it did not end") && !errors.Is(c.err, want) {
		c.r.Errorf("%s: it ended with: %v; want by errors.Is: %v", c.name, c.err, want)
	}
}

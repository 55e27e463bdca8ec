package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"iter"
	"strings"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// client is somebody who watches, leaves, and comes back to where it was.
type client struct {
	world    *world
	name     string
	takes    way
	opts     watchcache.WatchOptions[int] // without Start and Deadline
	selects  func(key string, object int) bool
	begins   begin
	deadline time.Duration // 0: none

	watched *watchcachetest.Watched[int] // by the process's checker; nil: not known to it yet
	watcher *watchcache.Watcher[int]     // nil: it is away
	channel <-chan watchcache.Event[int] // of byChannel
	gate    chan struct{}                // lets a loop's body go on
	at      watchcache.Position          // what it would resume after
	has     bool                         // there is such a position
	pasts   int                          // world.pasts when it got there
	taken   int
	digest  hash.Hash64
	wrong   error
}

// way is how a client takes events.
type way int

const (
	byTrying way = iota
	byTryingCoalesced
	byEvents  // a loop over Events, whose body blocks until the plan lets it go on
	byBatches // the same over Batches
	byChannel
	ways
)

// begin is how a client that has no position yet begins.
type begin int

const (
	fromState begin = iota
	fromNow
	fromAhead // at the source's position, which the cache may have yet to reach
	begins
)

func newClient(w *world, s step) *client {
	c := &client{world: w, name: fmt.Sprintf("client %d", len(w.clients)), digest: fnv.New64a()}
	c.takes = way(s.a % 8)
	if c.takes >= ways || c.takes == byChannel && w.config.parts {
		c.takes = byTrying
	}
	c.begins = begin(s.a / 8 % 5)
	if c.begins >= begins {
		c.begins = fromState
	}
	// The odd nanoseconds keep apart what would be due at the same moment: which of
	// two is first then, is not the plan's to say.
	c.opts = watchcache.WatchOptions[int]{
		Name:      c.name,
		Coalesce:  c.takes == byTryingCoalesced,
		Bookmarks: []time.Duration{0, 0, time.Second + 7, time.Minute + 11}[s.a/64%4],
		Stall: []watchcache.StallPolicy{
			nil,
			watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: time.Second + 13, Lag: w.config.mostInCommit() + 1}},
			watchcache.Evict{StallLimits: watchcache.StallLimits{StreamIdle: 10*time.Second + 17}},
			watchcache.Resync{},
			watchcache.Resync{StallLimits: watchcache.StallLimits{InitialIdle: 5*time.Second + 19, StreamIdle: 20*time.Second + 23, Lag: w.config.mostInCommit() + 15}},
			watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: watchcache.NoLimit}},
		}[s.c%6],
	}
	if s.a/256%8 == 0 {
		c.deadline = time.Duration(1+s.a/2048%100)*time.Second + 29
		c.opts.DeadlineLead = c.deadline / 4
	}
	even := func(_ string, object int) bool { return object%2 == 0 }
	inB := func(key string, _ int) bool { return strings.HasPrefix(key, "b/") }
	switch s.b % 8 {
	case 0:
		c.opts.Key = "a/0"
		c.selects = func(key string, _ int) bool { return key == "a/0" }
	case 1:
		c.opts.Prefix, c.selects = "b/", inB
	case 2:
		c.opts.From, c.opts.To = "a/3", "b/5"
		c.selects = func(key string, _ int) bool { return key >= "a/3" && key < "b/5" }
	case 3:
		c.opts.Index = watchcache.IndexValue{Name: "rest", Value: "1"}
		c.selects = func(_ string, object int) bool { return object%3 == 1 }
	case 4:
		c.opts.Filter, c.selects = even, even
	case 5:
		c.opts.Prefix, c.opts.Filter = "b/", even
		c.opts.Index = watchcache.IndexValue{Name: "rest", Value: "1"}
		c.selects = func(key string, object int) bool { return inB(key, object) && even(key, object) && object%3 == 1 }
	default:
		c.selects = func(string, int) bool { return true }
	}
	return c
}

// comeBack watches again, if the client is away and the cache is ready: after its
// position, or if it has none, or is told to, from the beginning.
func (c *client) comeBack() error {
	p, w := c.world.process, c.world
	status, _ := p.cache.Status()
	if c.watcher != nil || !status.Ready {
		return c.wrong
	}
	if c.has && c.pasts != w.pasts && c.watched == nil {
		// Of a past that another process has seen going under the same name: nobody
		// could know.
		c.has = false
	}
	opts := c.opts
	if c.deadline > 0 {
		opts.Deadline = w.clock.Now().Add(c.deadline)
	}
	var after watchcache.Position
	switch at := w.source.Position(); {
	case c.has:
		after = c.at
		opts.Start = watchcache.After(after)
	case c.begins == fromNow:
		opts.Start = watchcache.FromNow()
	case c.begins == fromAhead && at.Epoch == p.cache.Position().Epoch:
		after = at
		opts.Start = watchcache.After(after).AllowFuture()
	}
	watcher, err := p.cache.Watch(context.Background(), opts)
	switch {
	case err == nil:
	case !after.IsZero() && (errors.Is(err, watchcache.ErrExpired) || errors.Is(err, watchcache.ErrFuture)):
		w.figures.refused++
		if c.watched == nil {
			c.follow(watchcache.Position{}) // it is from the state that it will start
		}
		c.watched.Refused(after, err)
		c.has, c.begins = false, fromState
		return c.comeBack()
	default:
		return fmt.Errorf("%s does not come back after %v: %w", c.name, after, err)
	}
	if after.IsZero() && c.begins == fromNow {
		after, _ = watcher.Position()
	}
	c.follow(after)
	c.watcher, c.pasts = watcher, w.pasts
	switch c.takes {
	case byEvents:
		c.gate = make(chan struct{})
		go loop(c, watcher, watcher.Events(), c.gate, c.took)
	case byBatches:
		c.gate = make(chan struct{})
		go loop(c, watcher, watcher.Batches(), c.gate, func(batch watchcache.Batch[int]) {
			for _, ev := range batch.Events {
				c.took(ev)
			}
		})
	case byChannel:
		c.channel = watcher.Channel(2)
	}
	synctest.Wait()
	return c.wrong
}

// follow tells the checker where the client begins.
func (c *client) follow(after watchcache.Position) {
	if c.watched != nil {
		c.watched.Resumed(after)
		return
	}
	c.watched = c.world.process.check.Watcher(c.name, c.selects, after)
	if c.opts.Coalesce {
		c.watched.Coalesced()
	}
}

// take takes up to n events, or, in a loop, lets so many bodies end.
func (c *client) take(n int) error {
	for i := 0; i < n && c.watcher != nil && c.wrong == nil; i++ {
		switch c.takes {
		case byTrying, byTryingCoalesced:
			ev, ok, err := c.watcher.TryNext()
			switch {
			case err != nil:
				c.ended(err)
			case !ok:
				return c.wrong
			default:
				c.took(ev)
				c.watched.Position(c.watcher.Position())
			}
		case byEvents, byBatches:
			select {
			case c.gate <- struct{}{}:
				synctest.Wait()
			default:
				return c.wrong
			}
		case byChannel:
			select {
			case ev, ok := <-c.channel:
				if !ok {
					c.ended(c.watcher.Err())
					break
				}
				c.took(ev)
				synctest.Wait()
			default:
				return c.wrong
			}
		}
	}
	return c.wrong
}

func (c *client) takeAll() error { return c.take(1 << 30) }

// loop ranges over a stream, on a goroutine of its own, while the plan's rests.
func loop[E any](c *client, w *watchcache.Watcher[int], stream iter.Seq2[E, error], gate <-chan struct{}, took func(E)) {
	for e, err := range stream {
		if err != nil {
			c.ended(err)
			return
		}
		took(e)
		c.watched.Position(w.Position())
		<-gate
	}
	c.fail("a loop ended without an error")
}

// lose is the number of an event that every client loses: for a test of the tests.
var lose int

func (c *client) took(ev watchcache.Event[int]) {
	c.world.slept.Load()
	c.taken++
	if c.taken == lose {
		return
	}
	c.watched.Took(ev)
	fmt.Fprintln(c.digest, ev.Type, ev.Key, ev.Object, ev.Prev, ev.Revision, ev.Cause, ev.Initial, ev.More)
}

// endings are why a stream may end here.
var endings = []error{watchcache.ErrStopped, watchcache.ErrClosed, watchcache.ErrExpired, watchcache.ErrStalled, watchcache.ErrLagged, watchcache.ErrDeadline}

// ended notes the end of a stream, and what the client would resume after.
func (c *client) ended(err error) {
	c.world.slept.Load()
	c.watched.Ended(err)
	why := -1
	for i, e := range endings {
		if errors.Is(err, e) {
			why = i
		}
	}
	fmt.Fprintln(c.digest, "ended", why)
	if why < 0 {
		c.fail("ended with %v", err)
	}
	c.at, c.has = c.watcher.Position()
	if errors.Is(err, watchcache.ErrExpired) || c.takes == byChannel { // what is in a channel was not taken by anybody
		c.has = false
	}
	c.watcher, c.channel = nil, nil
}

// vanish leaves without a word.
func (c *client) vanish() error {
	if c.watcher != nil {
		c.watcher.Stop()
		c.findOut()
	}
	return c.wrong
}

// lost is the end of the process: the next one knows nothing of the client.
func (c *client) lost() error {
	if c.watcher != nil {
		c.findOut()
	}
	c.watched = nil
	return c.wrong
}

// findOut takes the end of a stream that is over.
func (c *client) findOut() {
	switch c.takes {
	case byEvents, byBatches:
		close(c.gate)
		synctest.Wait()
	case byChannel:
		synctest.Wait()
		for ev := range c.channel {
			c.took(ev)
		}
		c.ended(c.watcher.Err())
	default:
		c.take(1)
	}
	if c.watcher != nil {
		c.fail("a stream that is over goes on")
	}
}

func (c *client) fail(format string, args ...any) {
	if c.wrong == nil {
		c.wrong = fmt.Errorf(c.name+": "+format, args...)
	}
}

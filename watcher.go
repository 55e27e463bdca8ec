package watchcache

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/watchcache/watchcache/internal/cell"
	"github.com/watchcache/watchcache/internal/registry"
	"github.com/watchcache/watchcache/internal/wakeup"
	"github.com/watchcache/watchcache/internal/watchdog"
)

// Watcher is one consumer's place in a cache's stream of changes: a cursor on
// shared history, not a queue, and no goroutine.
//
// It has one consumer at a time: Events, Batches, Next, TryNext, Wait, Channel
// and [Pipe] are the consumer's. Everything else may be called by anyone, at any
// time.
//
// A watcher ends once, with one reason, which Err and the last pair of a
// sequence give: ErrStopped, ErrClosed, ErrExpired, ErrStalled, ErrLagged,
// ErrDeadline, ErrCallbackPanic, or the cause of the context that it was made
// with. The first reason wins.
//
// With WatchOptions.Coalesce, what is pending when the consumer comes by is
// joined by key, and delivered as if it were one commit, in order of revision:
// of several puts the newest, with the Prev of the oldest. A deletion in between
// is kept, so that a key that was deleted and made again gives Deleted and then
// Added; a key that came and went meanwhile gives nothing.
type Watcher[T any] struct {
	c      *Cache[T]
	group  *registry.Group // of those with the same selection
	filter func(key string, object T) bool
	rules  *rules
	name   string
	epoch  *string   // of all its positions: another one ends it
	plan   *plan     // nil: nothing is due at a time but the stall limits
	ahead  *ahead[T] // nil: the client was not ahead at the start

	// attention is not 0 when the consumer must not simply go on: a set of the
	// flags below. Set by anyone, and read by the consumer before each event.
	attention atomic.Uint32
	phase     atomic.Uint32
	own       wakeup.Signal               // wakes this consumer only: in Wait, and in Next with a context that can end
	room      atomic.Pointer[wakeup.Room] // where it sleeps otherwise; set by the consumer before it first does: see wake
	done      wakeup.Latch
	synced    wakeup.Latch

	// initial is the initial phase's state; nil outside it. Whoever ends the
	// watcher clears it: then the snapshot is free, although the consumer may sit
	// in its loop body, because the consumer holds on to nothing else meanwhile.
	initial atomic.Pointer[initial[T]]

	// What the consumer stores and others read: see internal/cell. member.Cursor
	// is the first event that was not taken, position and part what was taken
	// whole, taken the number of events.
	member   registry.Member
	position cell.Cell[uint64]
	taken    cell.Cell[uint64]
	takenAt  atomic.Int64  // when an event was last taken, as far as reported
	reported atomic.Uint64 // taken, at that time
	part     atomic.Uint32
	moves    atomic.Uint32 // odd while the consumer moves position and part together
	placed   atomic.Bool   // there is a position: not in an initial phase
	polled   atomic.Bool   // the watchdog looks at it every eighth of its limit

	// The consumer's own. start is what bookmarks must lie above to say something
	// new.
	unsynced  bool          // Synced is due when everything below syncUntil was taken
	busy      atomic.Uint32 // whether there is a consumer: consumerIdle, …
	pace      pace
	scan      uint64 // the next event to look at, or nowhere
	found     found  // an event that was found and not yet delivered
	taking    taking // what taking the event in hand will change
	syncUntil uint64
	start     mark
	coalesced *coalesced // with Coalesce

	timer   watchdog.Timer
	seen    *seen                       // the watchdog's own
	release atomic.Pointer[func() bool] // lets go of the context; follow's, for announce

	// Guarded by Cache.mu. draining is written before attention gets the flag
	// drain, and err before it gets ended, and neither changes after.
	place    int32 // in Cache.watchers
	draining *draining
	err      error
	settled  uint64 // of taken, what Cache.delivered has
}

// rules are a stall policy with its limits, shared by watchers.
type rules struct {
	policy StallPolicy
	limits StallLimits
}

// draining is how far a watcher goes on, and how it ends then.
type draining struct {
	until uint64
	at    Position // the head's
	err   error
}

// The flags of Watcher.attention.
const (
	ended    = 1 << iota // it is over: err
	resync               // start again with a fresh snapshot
	overrun              // history has dropped what it needs; a verdict is under way
	drain                // deliver up to until, then end: drainErr
	bookmark             // a bookmark is due
	joining              // Watch has not looked through history yet: what the watcher lacks is not known
)

// The values of Watcher.busy.
const (
	consumerIdle = iota
	consumerBusy
	consumerForGood // Events, Batches or Channel: the one and only use
)

// plan is what is due for a watcher at certain times of the watchdog. It is made
// before the watcher is registered; every does not change, and the rest is the
// watchdog's own from when the timer is set (the watchdog's lock is the edge).
type plan struct {
	every        time.Duration // bookmarks
	nextBookmark time.Duration
	lead         time.Duration // the bookmark before the deadline; 0: none, or past
	deadline     time.Duration // 0: none, or past
}

// found is an event that concerns the watcher.
type found struct {
	seq  uint64
	kind kind
}

// taking is what changes when the event in hand has been taken.
type taking struct {
	cursor   uint64
	revision uint64
	part     uint32
	moves    bool // position moves to (revision, part)
	synced   bool // the initial phase ends
}

// Watch starts a watcher. It costs the same however large the state is, and
// needs no goroutine (but package context starts one for a ctx of a type that is not its
// own). It waits until the cache is ready and as fresh as
// opts.AtLeast. The watcher must be ended: by ctx, by Stop, by leaving a loop
// over Events or Batches, or by the cache.
//
// To resume with a selection that nobody else watches, it looks through the
// history after the position once, on the caller's goroutine.
//
// Errors: ErrInvalidOption ([OptionError]); ErrExpired ([ExpiredError]) for a
// position before Oldest, or in the hole of a relist, and, being ErrEpoch too, for
// one of another epoch; ErrFuture
// ([FutureError]) for one beyond the head, without AllowFuture; ErrTimeout after
// opts.AtLeastWait; ErrTooManyWatchers; ErrCallbackPanic from the policy's
// Limits; ErrClosed; the context's cause. The last one and ErrTimeout come, before
// the cache was ready, with ErrNotReady and the source's last error.
func (c *Cache[T]) Watch(ctx context.Context, opts WatchOptions[T]) (*Watcher[T], error) {
	if err := opts.validate(c.indexNames); err != nil {
		return nil, err
	}
	w := &Watcher[T]{c: c, filter: opts.Filter, rules: c.rules, name: opts.Name}
	if opts.Stall != nil {
		var err error
		if w.rules, err = newRules(opts.Stall, "WatchOptions.Stall"); err != nil {
			return nil, err
		}
	}
	w.member.Owner, w.member.LagLimit = w, w.rules.limits.Lag
	w.timer.Task = onTime[T]{w}
	if opts.Coalesce {
		w.coalesced = new(coalesced)
	}
	selection := opts.selection(c.indexNames)
	var now time.Time
	if ctx.Err() != nil {
		return nil, c.late(context.Cause(ctx), opts.AtLeast)
	}
	for {
		now = c.opts.Clock.Now()
		w.plan = newPlan(&opts, now, c.watchdog.Since(now)) // before anybody can find the watcher
		c.mu.Lock()
		fresh, err := c.ready && c.head.Revision >= opts.AtLeast, error(nil)
		if fresh || c.draining {
			err = w.register(opts.Start, selection, now)
		}
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if fresh {
			break
		}
		if err := c.awaitFresh(ctx, opts.AtLeast, opts.AtLeastWait); err != nil {
			return nil, err
		}
	}
	if err := w.cover(selection); err != nil {
		w.refuse(err)
		return nil, err
	}
	w.schedule(now)
	w.follow(ctx)
	return w, nil
}

// newRules asks a policy for its limits.
func newRules(policy StallPolicy, field string) (*rules, error) {
	r := &rules{policy: policy}
	if err := guard("StallPolicy.Limits", func() { r.limits = policy.Limits() }); err != nil {
		return nil, err
	}
	return r, r.limits.validate(field)
}

// awaitFresh waits until the cache is ready and has a revision.
func (c *Cache[T]) awaitFresh(ctx context.Context, atLeast uint64, most time.Duration) error {
	var timeout <-chan time.Time
	if most > 0 {
		timeout = c.opts.Clock.After(most)
	}
	return c.wait(ctx, atLeast, timeout, func() (bool, error) {
		if c.draining {
			return false, ErrClosed
		}
		return c.ready && c.head.Revision >= atLeast, nil
	})
}

// register makes the watcher one of the cache's; the caller holds mu.
func (w *Watcher[T]) register(start Start, selection registry.Selection, now time.Time) error {
	c := w.c
	switch {
	case c.draining:
		return ErrClosed
	case c.opts.MaxWatchers > 0 && len(c.watchers) >= c.opts.MaxWatchers:
		return ErrTooManyWatchers
	}
	head := c.ring.head.Load()
	cursor, phase := head, PhaseStreaming
	switch start.kind {
	case startState:
		phase = PhaseInitial
		w.begin(c.snapshotLocked(), now)
		w.unsynced = true
	case startNow:
		w.start = c.head.mark()
	default:
		after := start.position
		if start.kind == startRevision {
			after.Epoch = c.epoch
		}
		w.start = after.mark()
		err := c.resumable(after)
		switch {
		case err == nil:
			cursor = c.ring.after(after)
		case errors.Is(err, ErrFuture) && start.allowFuture:
			cursor = nowhere
			w.ahead = &ahead[T]{watcher: w, at: w.start}
			c.ahead.Push(w.ahead)
		default:
			return err
		}
	}
	w.scan = cursor
	w.member.Cursor.Set(cursor)
	w.position.Set(w.start.revision)
	w.part.Store(w.start.part)
	w.placed.Store(phase == PhaseStreaming)
	w.epoch = c.era
	w.takenAt.Store(int64(c.watchdog.Since(now)))
	w.phase.Store(uint32(phase))
	w.group = c.registry.Join(&w.member, selection, head)
	if !w.group.All() {
		w.attention.Or(joining)
	}
	w.place = int32(len(c.watchers))
	c.watchers = append(c.watchers, w)
	if phase == PhaseStreaming {
		w.syncUntil = head
		if cursor >= head {
			w.synced.Close()
		} else {
			w.unsynced = true
		}
		if w.ahead == nil {
			c.registry.Stream(&w.member, head, c.ring.oldest.Load())
		}
	}
	return nil
}

// cover makes the list of the watcher's group reach back to its cursor. History
// is looked through without a lock.
func (w *Watcher[T]) cover(selection registry.Selection) error {
	c, from := w.c, w.member.Cursor.Get()
	if w.group.All() {
		return nil
	}
	defer func() {
		w.attention.And(^uint32(joining))
		if w.attention.Load()&drain != 0 { // meanwhile nobody could tell whether it has everything
			w.nudge()
		}
	}()
	c.mu.RLock() // Cover moves it back, and only then publishes the longer list
	to := w.group.Since()
	c.mu.RUnlock()
	if from >= to {
		w.checkSynced(from)
		return nil
	}
	var list []uint64
	for seq := from; seq < to; seq++ {
		chunk, i := c.ring.find(seq)
		if chunk == nil {
			return &ExpiredError{Requested: w.startPosition(), Oldest: c.Oldest()}
		}
		if chunk.concerns(i, selection) {
			list = append(list, seq)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(list) > 0 && list[0] < c.ring.oldest.Load() {
		return c.expired(w.startPosition())
	}
	a := w.attention.Load()
	if a&ended != 0 {
		return nil
	}
	c.registry.Cover(w.group, from, list)
	w.checkSynced(from)
	if a&(overrun|resync) == 0 { // else it is being judged, or parked already
		c.registry.Park(&w.member) // its lag is another one now
		c.registry.Stream(&w.member, c.ring.head.Load(), c.ring.oldest.Load())
	}
	return nil
}

func (w *Watcher[T]) startPosition() Position {
	return Position{Epoch: *w.epoch, Revision: w.start.revision, Part: w.start.part}
}

// expired is the end of a watcher that the cache's numbering has left behind; the
// caller holds mu.
func (w *Watcher[T]) expired() error {
	at, ok := w.Position()
	if p := w.initial.Load(); p != nil {
		at = p.snapshot.position
	} else if !ok { // parked
		at = Position{Epoch: *w.epoch, Revision: w.position.Get()}
	}
	return w.c.expired(at)
}

// concerns reports whether a selection selects the event's old or new object.
func (c *chunk[T]) concerns(i uint64, selection registry.Selection) bool {
	if !selection.HasKey(c.slots[i].Key) {
		return false
	}
	if selection.Index == 0 {
		return true
	}
	pair := c.derived[i]
	return contains(pair.before.values(selection.Index-1), selection.Value) ||
		contains(pair.after.values(selection.Index-1), selection.Value)
}

// newPlan returns what the options want at certain times; nil: nothing.
func newPlan[T any](opts *WatchOptions[T], wall time.Time, now time.Duration) *plan {
	if opts.Bookmarks <= 0 && opts.Deadline.IsZero() {
		return nil
	}
	p := &plan{every: opts.Bookmarks, nextBookmark: later(now, opts.Bookmarks)}
	if !opts.Deadline.IsZero() {
		// From here on the deadline is so much time away: what the wall clock
		// says meanwhile does not matter.
		p.deadline = max(1, later(now, opts.Deadline.Sub(wall)))
		if opts.DeadlineLead > 0 {
			p.lead = max(1, p.deadline-opts.DeadlineLead)
		}
	}
	return p
}

// schedule sets the watcher's timer. The plan comes first: once the timer is set, it
// is the watchdog's.
func (w *Watcher[T]) schedule(wall time.Time) {
	now := w.c.watchdog.Since(wall)
	w.armPlan(now)
	w.armAfter(now, w.rules.limits.InitialIdle, PhaseInitial)
	w.armAfter(now, w.rules.limits.StreamIdle, PhaseStreaming)
}

// follow ends the watcher with its context.
func (w *Watcher[T]) follow(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	release := context.AfterFunc(ctx, func() { w.end(context.Cause(ctx)) })
	w.release.Store(&release)
	if w.attention.Load()&ended != 0 { // it may have ended before announce could see it
		release()
	}
}

// Position returns what has been taken whole: resuming after it loses nothing and
// repeats nothing. Before Synced is taken, in an initial phase, there is none: it
// returns false.
func (w *Watcher[T]) Position() (Position, bool) {
	for {
		moves := w.moves.Load()
		revision := w.position.Get()
		part := w.part.Load()
		if moves%2 != 0 || w.moves.Load() != moves {
			runtime.Gosched()
			continue
		}
		if !w.placed.Load() {
			return Position{}, false
		}
		return Position{Epoch: *w.epoch, Revision: revision, Part: part}, true
	}
}

func (w *Watcher[T]) currentPhase() Phase { return Phase(w.phase.Load()) }

// Synced returns a channel that is closed when the initial state was taken; for
// a watcher without one, when everything was taken that was there at its start.
func (w *Watcher[T]) Synced() <-chan struct{} { return w.synced.Done() }

// Done returns a channel that is closed when the watcher has ended: on eviction,
// Stop, Close and the end of the context at once, wherever its consumer is, so
// that a write deadline can hang on it; on a deadline and on Shutdown after the
// last event was taken.
func (w *Watcher[T]) Done() <-chan struct{} { return w.done.Done() }

// Err returns why the watcher ended, and nil before.
//
// Errors: ErrStopped; ErrStalled and ErrLagged ([StalledError]); ErrExpired
// ([ExpiredError]); ErrDeadline; ErrClosed; ErrCallbackPanic ([PanicError]); the
// cause of the context of Watch.
func (w *Watcher[T]) Err() error {
	if w.attention.Load()&ended == 0 {
		return nil
	}
	return w.err
}

// Stop ends the watcher with ErrStopped and releases everything that it holds in
// the cache. It never blocks, may be called from anywhere, also inside the loop
// body, and more than once.
func (w *Watcher[T]) Stop() { w.end(ErrStopped) }

// RequestBookmark has a bookmark delivered as soon as everything before it was
// taken, also to a watcher without WatchOptions.Bookmarks. There is none in an
// initial phase, and none at or below the position that the watcher started after,
// or was synced at.
func (w *Watcher[T]) RequestBookmark() {
	if w.currentPhase() == PhaseStreaming {
		w.attention.Or(bookmark)
		w.wake()
	}
}

// end ends the watcher, unless it has ended. The caller holds no lock.
func (w *Watcher[T]) end(err error) {
	w.c.mu.Lock()
	first := w.endLocked(err)
	w.c.mu.Unlock()
	if first {
		w.announce()
	}
}

// refuse is end for a watcher that nobody was given yet: it does not count as one
// that ended.
func (w *Watcher[T]) refuse(err error) {
	c := w.c
	c.mu.Lock()
	first := w.endLocked(err)
	if first {
		c.ended[endingOf(err)]--
	}
	c.mu.Unlock()
	if first {
		w.announce()
	}
}

// endLocked is what of end needs mu, which the caller holds; the caller announces
// the end when it has let go of it.
func (w *Watcher[T]) endLocked(err error) bool {
	if w.attention.Load()&ended != 0 {
		return false
	}
	c := w.c
	w.err = err
	w.attention.Or(ended)
	w.phase.Store(uint32(PhaseEnded))
	if w.ahead != nil {
		c.ahead.Remove(w.ahead)
	}
	w.forget()
	c.registry.Leave(&w.member, &w.own)
	last := len(c.watchers) - 1
	c.watchers[w.place] = c.watchers[last]
	c.watchers[w.place].place = w.place
	c.watchers[last] = nil
	c.watchers = c.watchers[:last]
	if last == 0 {
		c.emptied.Fire()
	}
	c.ended[endingOf(err)]++
	w.settleLocked()
	return true
}

// announce tells everybody that the watcher has ended.
func (w *Watcher[T]) announce() {
	w.c.watchdog.Cancel(&w.timer)
	if release := w.release.Load(); release != nil {
		(*release)()
	}
	w.done.Close()
	w.own.Fire()
	if room := w.room.Swap(noRoom); room != nil && room != noRoom {
		room.Wake()
		room.GiveBack()
	}
}

// settle adds to the cache's count what the watcher has delivered since it last
// did. end does so, and the consumer when it finds that the watcher has ended: it
// may have been taking an event at that moment.
func (w *Watcher[T]) settle() {
	w.c.mu.Lock()
	w.settleLocked()
	w.c.mu.Unlock()
}

func (w *Watcher[T]) settleLocked() {
	taken := w.taken.Get()
	w.c.delivered += taken - w.settled
	w.settled = taken
}

// drainLocked lets the watcher end with err when it has taken everything that is
// committed now. The caller holds mu, and nudges the watcher when it has let go.
func (w *Watcher[T]) drainLocked(err error) {
	if w.attention.Load()&(ended|drain) != 0 {
		return
	}
	w.draining = &draining{until: w.c.ring.head.Load(), at: w.c.head, err: err}
	if w.plan != nil && w.plan.every > 0 && err == ErrClosed {
		w.attention.Or(drain | bookmark)
	} else {
		w.attention.Or(drain)
	}
}

// drained reports whether the watcher drains and has taken all that it is to get, as
// far as its group's list tells: while it joins, that says nothing. What drain was set
// together with is seen by who looks at attention after it.
func (w *Watcher[T]) drained() bool {
	return w.attention.Load()&(drain|joining) == drain && w.group.Lag(w.member.Cursor.Get(), w.draining.until) == 0
}

// nudge wakes the watcher's consumer, and ends a draining watcher that has taken
// everything: its consumer may never come by again. Only a last bookmark is left
// to the consumer.
func (w *Watcher[T]) nudge() {
	if !w.endDrained() {
		w.wake()
	}
}

func (w *Watcher[T]) endDrained() bool {
	if w.currentPhase() != PhaseStreaming || !w.drained() || w.attention.Load()&(bookmark|overrun) != 0 {
		return false
	}
	w.end(w.draining.err)
	return true
}

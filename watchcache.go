package watchcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchcache/watchcache/internal/minheap"
	"github.com/watchcache/watchcache/internal/registry"
	"github.com/watchcache/watchcache/internal/wakeup"
	"github.com/watchcache/watchcache/internal/watchdog"
	"github.com/watchcache/watchcache/internal/yieldlock"
)

// Cache is the current state of a collection and the recent history of its
// changes. All its methods may be called concurrently, also inside a watcher's
// loop. Make one with [New]; Close it when it is no longer used.
type Cache[T any] struct {
	opts       Options[T]
	rules      *rules   // of Options.Stall
	indexNames []string // sorted: an index's number is its place here
	first      uint64   // the revision before the first commit: nothing yet
	ring       *ring[T]
	watchdog   *watchdog.Watchdog

	// turn is held for a writer's whole turn, together with the hooks that see
	// the state before. Only writers take it: nothing that reads, watches, stops
	// or closes ever waits for it. Lock order: turn, then mu, then the locks of
	// internal packages, which are leaves.
	turn     sync.Mutex
	suspects []suspect[T]  // found in this turn, judged after it
	gone     []*Watcher[T] // ended in this turn, told after it

	// mu makes a commit visible whole: it guards the published state, the
	// watchers and all that follows. It is never held while user code runs, and
	// for no longer than a small commit takes. state, epoch, sourceEpoch, head and
	// ready are changed by the holder of turn only, which may therefore read them
	// without mu. A writer takes it by LockFirst, so that nobody who only looks or
	// begins to watch has it wait for a processor.
	mu          yieldlock.Mutex
	state       state[T]
	epoch       string          // of positions given out
	era         *string         // epoch again, shared by its watchers
	sourceEpoch string          // what the source calls it; differs after a restored backup
	epochs      map[string]bool // names of numberings that were left, the source's; the writer's
	head        Position
	oldest      Position
	relists     []relist // holes in the numbering that history still shows
	ready       bool
	draining    bool
	closed      bool
	registry    *registry.Registry
	watchers    []*Watcher[T]
	ahead       minheap.Heap[*ahead[T]] // those whose position the head has not passed
	ended       [endings]uint64
	delivered   uint64 // by watchers that are gone; see Watcher.settle
	progressed  time.Duration
	ageArmed    bool
	status      Status

	leases   leases
	snapshot atomic.Pointer[Snapshot[T]] // the current one, if anybody asked for it; nil after a commit
	rewound  rewound[T]

	moved         wakeup.Signal // head, epoch or readiness changed, or the cache was closed
	statusChanged wakeup.Signal
	emptied       wakeup.Signal // the last watcher ended
	ageTimer      watchdog.Timer
	source        sourceState
}

// relist is a hole: what happened strictly between the two positions is unknown.
type relist struct {
	after   mark
	upTo    mark
	seq     uint64 // the difference, if any, begins here in history
	touched []touched
}

// hides reports whether a position lies in the hole.
func (r *relist) hides(m mark) bool {
	return m.compare(r.after.revision, r.after.part) > 0 && m.compare(r.upTo.revision, r.upTo.part) < 0
}

// holeEnd returns where the hole ends that a position of the current epoch lies
// in; the zero Position if it lies in none. The caller holds mu.
func (c *Cache[T]) holeEnd(m mark) Position {
	for i := range c.relists {
		if hole := &c.relists[i]; hole.hides(m) {
			return Position{Epoch: c.epoch, Revision: hole.upTo.revision, Part: hole.upTo.part}
		}
	}
	return Position{}
}

// touched is an item whose object stayed while its revision changed in a hole.
type touched struct {
	key      string
	revision uint64 // before
}

// New makes a cache.
//
// Errors: ErrInvalidOption ([OptionError]); ErrCallbackPanic from the Limits of
// Options.Stall.
func New[T any](opts Options[T]) (*Cache[T], error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	rules, err := newRules(opts.Stall, "Options.Stall")
	if err != nil {
		return nil, err
	}
	c := &Cache[T]{
		opts:        opts,
		rules:       rules,
		registry:    registry.New(),
		watchdog:    watchdog.New(opts.Clock),
		epoch:       opts.Epoch,
		sourceEpoch: opts.Epoch,
		ring: newRing[T](ringLimits{
			capacity:  opts.Capacity,
			keep:      opts.Keep,
			retention: opts.Retention,
			bytes:     opts.MaxBytes,
		}, columns{
			age:     opts.Retention > 0,
			weight:  opts.Size != nil,
			derived: len(opts.Indexes) > 0,
		}),
	}
	for name := range opts.Indexes {
		c.indexNames = append(c.indexNames, name)
	}
	slices.Sort(c.indexNames)
	c.state = newState[T](len(c.indexNames))
	c.ageTimer.Task = ager[T]{c}
	c.rewound.timer.Task = forgetter[T]{c}
	c.head, c.era = Position{Epoch: c.epoch}, &opts.Epoch
	if !opts.Mirror {
		c.first = opts.FirstRevision - 1
		c.head.Revision = c.first
		c.ready = true
	}
	c.oldest = c.head
	c.status = Status{Ready: c.ready, Since: opts.Clock.Now()}
	return c, nil
}

// Get returns the item of a key, in O(log n).
func (c *Cache[T]) Get(key string) (Item[T], bool) {
	c.mu.RLock()
	e, ok := c.state.get(key)
	c.mu.RUnlock()
	if !ok {
		return Item[T]{}, false
	}
	return c.item(key, e), true
}

// Snapshot returns the current state, in O(1); it never waits for a writer's
// hooks. It returns the same snapshot until the next commit. Before the cache is
// ready it is empty, at revision 0.
func (c *Cache[T]) Snapshot() *Snapshot[T] {
	if s := c.snapshot.Load(); s != nil && s.lease.pin() {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.snapshotLocked()
	s.lease.pin()
	return s
}

// snapshotLocked is Snapshot for a caller that holds mu, and holds or pins its
// lease before it lets go. Every commit clears c.snapshot under mu, so that what
// it has is never older than the state.
func (c *Cache[T]) snapshotLocked() *Snapshot[T] {
	s := c.snapshot.Load()
	if s == nil {
		l := &lease{before: c.state.marks()}
		s = &Snapshot[T]{cache: c, state: c.state.copy(), position: c.head, lease: l}
		c.leases.add(l)
		c.snapshot.Store(s)
	}
	return s
}

// Since returns history after a revision of the current epoch, with all of its parts,
// up to now: what SnapshotAt of that revision lacks.
//
// Errors: ErrNotReady; ErrExpired ([ExpiredError]); ErrFuture ([FutureError]).
func (c *Cache[T]) Since(revision uint64) (*Interval[T], error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	after := c.endOf(revision)
	if err := c.resumable(after); err != nil {
		return nil, err
	}
	return &Interval[T]{cache: c, from: c.ring.after(after), to: c.ring.head.Load(), after: after, upTo: c.head}, nil
}

// resumable tells whether history reaches back to p. The caller holds mu.
func (c *Cache[T]) resumable(p Position) error {
	switch {
	case !c.ready:
		return ErrNotReady
	case p.Epoch != c.epoch || p.compare(c.oldest.Revision, c.oldest.Part) < 0:
		return c.expired(p)
	case p.compare(c.head.Revision, c.head.Part) > 0:
		return &FutureError{Requested: p, Head: c.head}
	}
	if !c.holeEnd(p.mark()).IsZero() {
		return c.expired(p)
	}
	return nil
}

// expired is the error about a position that history does not reach. The caller
// holds mu.
func (c *Cache[T]) expired(p Position) error {
	err := &ExpiredError{Requested: p, Oldest: c.oldest}
	if !err.foreign() { // no hole reaches below oldest: see dropTo
		err.HoleEnd = c.holeEnd(p.mark())
	}
	return err
}

// Position returns the position of the newest commit, or of Progress beyond it.
func (c *Cache[T]) Position() Position {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.head
}

// Oldest returns the oldest position that can still be resumed. Within an epoch
// it never goes back.
func (c *Cache[T]) Oldest() Position {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.oldest
}

// WaitReady waits until the cache has a state.
//
// Errors: ErrClosed; and when the context ends first, an error that is
// ErrNotReady, the context's cause, and the source's last error if there was one.
func (c *Cache[T]) WaitReady(ctx context.Context) error {
	return c.wait(ctx, 0, nil, func() (bool, error) { return c.ready, nil })
}

// WaitRevision waits until the cache has everything up to revision, of the epoch
// that is current when it is called, or before the cache is ready, of the first
// state's. Meanwhile it asks a source that is a
// [ProgressRequester] for progress.
//
// Errors: ErrEpoch if the numbering changes; ErrClosed; the context's cause,
// wrapped to tell how far the cache is; and with it, before the cache is ready,
// ErrNotReady and the source's last error.
func (c *Cache[T]) WaitRevision(ctx context.Context, revision uint64) error {
	epoch, known := "", false
	return c.wait(ctx, revision, nil, func() (bool, error) {
		if !c.ready {
			return false, nil
		}
		if !known {
			epoch, known = c.epoch, true
		}
		if c.epoch != epoch {
			return false, fmt.Errorf("%w: waiting for revision %d of %q, now numbered by %q", ErrEpoch, revision, epoch, c.epoch)
		}
		return c.head.Revision >= revision, nil
	})
}

// wait waits until met, called under mu, says so, or until timeout. What is waited
// for is a state with a revision.
func (c *Cache[T]) wait(ctx context.Context, revision uint64, timeout <-chan time.Time, met func() (bool, error)) error {
	for {
		moved := c.moved.Arm()
		c.mu.RLock()
		ok, err := met()
		ready, closed := c.ready, c.closed
		c.mu.RUnlock()
		switch {
		case err != nil:
			return err
		case closed:
			return ErrClosed
		case ok:
			return nil
		}
		var again <-chan time.Time
		if ready {
			again = c.requestProgress()
		}
		select {
		case <-moved:
		case <-again:
		case <-timeout:
			return c.late(ErrTimeout, revision)
		case <-ctx.Done():
			return c.late(context.Cause(ctx), revision)
		}
	}
}

// late adds to the error of who has waited for a revision how far the cache is:
// before it is ready, why it is not.
func (c *Cache[T]) late(err error, revision uint64) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case !c.ready:
		return errors.Join(ErrNotReady, err, c.status.LastError)
	case c.head.Revision < revision:
		return fmt.Errorf("%w: waited for revision %d, the cache is at %v", err, revision, c.head)
	}
	return err
}

// Close ends all watchers with ErrClosed, at once, and refuses writes and new
// watchers from then on; reading goes on. It never waits for a consumer or a
// writer, may be called from anywhere and more than once.
//
// Errors: none; it returns nil, and is an [io.Closer].
func (c *Cache[T]) Close() error {
	c.mu.Lock()
	c.closed, c.draining = true, true
	watchers := slices.Clone(c.watchers)
	for _, w := range watchers {
		w.endLocked(ErrClosed)
	}
	c.mu.Unlock()
	for _, w := range watchers {
		w.announce()
	}
	c.watchdog.Stop()
	c.rewound.drop(Position{Revision: math.MaxUint64, Part: math.MaxUint32}) // nobody would come by later
	c.source.close()
	c.moved.Fire()
	c.statusChanged.Fire()
	c.emptied.Fire()
	return nil
}

// Shutdown refuses writes and new watchers, lets each watcher take what was
// committed before, with a last bookmark if it asked for bookmarks, and ends it
// with ErrClosed then. When all have ended, or when ctx ends, it closes the
// cache.
//
// Errors: the context's cause, if watchers were still draining. Close, also
// during Shutdown, is the stronger of the two.
func (c *Cache[T]) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	c.draining = true
	watchers := slices.Clone(c.watchers)
	for _, w := range watchers {
		w.drainLocked(ErrClosed)
	}
	c.mu.Unlock()
	c.source.close()
	c.moved.Fire() // who waits to register looks again
	for _, w := range watchers {
		w.nudge()
	}
	defer c.Close()
	for {
		emptied := c.emptied.Arm()
		c.mu.RLock()
		left := len(c.watchers)
		c.mu.RUnlock()
		if left == 0 {
			return nil
		}
		select {
		case <-emptied:
		case <-ctx.Done():
			c.mu.RLock()
			left := len(c.watchers)
			c.mu.RUnlock()
			if left == 0 { // both at once
				return nil
			}
			return context.Cause(ctx)
		}
	}
}

func (c *Cache[T]) log(level slog.Level, message string, args ...any) {
	c.opts.Logger.Log(context.Background(), level, message, args...)
}

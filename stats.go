package watchcache

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"
)

// Status is how a cache stands to its source.
type Status struct {
	Ready     bool      // it has a state
	Connected bool      // Run has listed, and follows the source's changes
	Since     time.Time // when Ready or Connected last changed
	// LastError is why the source last failed; nil again after the next listing,
	// commit or progress. On a source that is quiet after a short interruption it
	// stays, beside Connected, until then; after a Run that has ended, until the next.
	LastError error
	// LastProgress is when the last commit, listing or progress came. It does
	// not fire the channel that Status returns.
	LastProgress time.Time
}

// MarshalJSON is as for any struct, but that LastError is its text, "" for nil.
// There is no way back.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	return json.Marshal(struct {
		plain
		LastError string
	}{plain(s), errorText(s.LastError)})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Status returns the status, and a channel that is closed when it changes.
func (c *Cache[T]) Status() (Status, <-chan struct{}) {
	changed := c.statusChanged.Arm()
	now := c.opts.Clock.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.status
	s.LastProgress = now.Add(c.progressed - c.watchdog.Since(now))
	return s, changed
}

// setStatus changes the status, and tells if it has changed. setStatusLocked is
// for a caller that holds mu.
func (c *Cache[T]) setStatus(change func(*Status)) {
	now := c.opts.Clock.Now()
	c.mu.Lock()
	c.setStatusLocked(now, change)
	c.mu.Unlock()
}

func (c *Cache[T]) setStatusLocked(now time.Time, change func(*Status)) {
	before := c.status
	change(&c.status)
	if c.status.Ready != before.Ready || c.status.Connected != before.Connected {
		c.status.Since = now
	} else if c.status.LastError == nil && before.LastError == nil {
		return
	}
	c.statusChanged.Fire()
}

// ending is a reason for which watchers end.
type ending int

const (
	endedOther ending = iota
	endedStopped
	endedClosed
	endedExpired
	endedStalled
	endedLagged
	endedDeadline
	endedContext
	endedPanicked
	endings // how many there are
)

func endingOf(err error) ending {
	switch {
	case errors.Is(err, ErrStopped):
		return endedStopped
	case errors.Is(err, ErrClosed):
		return endedClosed
	case errors.Is(err, ErrExpired):
		return endedExpired
	case errors.Is(err, ErrStalled):
		return endedStalled
	case errors.Is(err, ErrLagged):
		return endedLagged
	case errors.Is(err, ErrDeadline):
		return endedDeadline
	case errors.Is(err, ErrCallbackPanic):
		return endedPanicked
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return endedContext
	}
	return endedOther
}

// Endings counts the watchers that have ended, by reason.
type Endings struct {
	Stopped, Closed, Expired, Stalled, Lagged, Deadline, Panicked uint64
	Context                                                       uint64 // cancelled, or past the context's deadline
	Other                                                         uint64 // another cause of the context
}

// Stats are figures for operators.
type Stats struct {
	Position      Position      // the head
	Oldest        Position      // the oldest position that can be resumed
	Objects       int           // keys in the state
	History       int           // events in history
	HistoryBytes  int64         // what they weigh, by Options.Size; 0 without it
	Watchers      int           // now
	Initial       int           // of these, in their initial phase
	Streaming     int           // of these, streaming
	MaxLag        int           // events, the largest of all watchers that stream
	Deliveries    uint64        // events taken by consumers, ever; bookmarks and other markers too
	Endings       Endings       // of watchers, ever
	SinceProgress time.Duration // since the last commit, listing or progress
	Ready         bool          // as in Status
	Connected     bool          // as in Status
	LastError     error         // as in Status
}

// MarshalJSON is as for any struct, but that LastError is its text, "" for nil.
// There is no way back.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	return json.Marshal(struct {
		plain
		LastError string
	}{plain(s), errorText(s.LastError)})
}

// Stats returns the cache's figures. It costs a little for each watcher, outside
// the cache's lock.
func (c *Cache[T]) Stats() Stats {
	now := c.watchdog.Now()
	c.mu.RLock()
	s := Stats{
		Position:      c.head,
		Oldest:        c.oldest,
		Objects:       c.state.len(),
		History:       c.ring.len(),
		SinceProgress: max(0, now-c.progressed),
		Watchers:      len(c.watchers),
		Deliveries:    c.delivered,
		Endings: Endings{
			Stopped:  c.ended[endedStopped],
			Closed:   c.ended[endedClosed],
			Expired:  c.ended[endedExpired],
			Stalled:  c.ended[endedStalled],
			Lagged:   c.ended[endedLagged],
			Deadline: c.ended[endedDeadline],
			Panicked: c.ended[endedPanicked],
			Context:  c.ended[endedContext],
			Other:    c.ended[endedOther],
		},
		Ready:     c.status.Ready,
		Connected: c.status.Connected,
		LastError: c.status.LastError,
	}
	s.HistoryBytes = c.ring.bytes.Load()
	watchers := slices.Clone(c.watchers)
	settled := make([]uint64, len(watchers))
	for i, w := range watchers {
		settled[i] = w.settled
	}
	c.mu.RUnlock()
	for i, w := range watchers {
		s.Deliveries += w.taken.Get() - settled[i]
		switch stall := w.stall(); stall.Phase {
		case PhaseInitial:
			s.Initial++
		case PhaseStreaming:
			s.Streaming++
			s.MaxLag = max(s.MaxLag, stall.Lag)
		case PhaseEnded: // since the list was copied
			s.Watchers--
		}
	}
	return s
}

// WatcherInfo describes one watcher.
type WatcherInfo struct {
	Name      string
	Phase     Phase
	Lag       int           // events of its selection that it has before it
	Idle      time.Duration // since it last took an event; of a fast consumer, at most
	Delivered uint64        // events taken
	Position  Position      // zero in its initial phase
}

// Watchers returns the watchers that there are now, in no particular order. The
// cache's lock is not held while they are looked at.
func (c *Cache[T]) Watchers() iter.Seq[WatcherInfo] {
	return func(yield func(WatcherInfo) bool) {
		for _, w := range c.currentWatchers() {
			s := w.stall()
			if s.Phase == PhaseEnded {
				continue
			}
			info := WatcherInfo{Name: s.Name, Phase: s.Phase, Lag: s.Lag, Idle: s.Idle, Delivered: s.Delivered, Position: s.Position}
			if !yield(info) {
				return
			}
		}
	}
}

func (c *Cache[T]) currentWatchers() []*Watcher[T] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.watchers)
}

package watchcache

import (
	"log/slog"
	"time"

	"github.com/watchcache/watchcache/internal/registry"
)

// suspect is a watcher that a writer found overrun or too far behind.
type suspect[T any] struct {
	watcher *Watcher[T]
	overrun bool
	drained bool // overrun by what it was not to get any more: it has everything
}

// suspect and overrun note a watcher for the end of the turn; the caller holds
// mu.
func (c *Cache[T]) suspect(m *registry.Member) {
	c.suspects = append(c.suspects, suspect[T]{watcher: m.Owner.(*Watcher[T])})
}

func (c *Cache[T]) overrun(m *registry.Member) {
	w := m.Owner.(*Watcher[T])
	// Now the group's list still has what the watcher needs.
	if w.drained() {
		c.suspects = append(c.suspects, suspect[T]{watcher: w, drained: true})
		return
	}
	w.attention.Or(overrun)
	c.suspects = append(c.suspects, suspect[T]{watcher: w, overrun: true})
}

// judge asks the watcher's policy and does what it says. The caller holds no
// lock. With idle it is for a watcher that had taken so many events when it was
// found idle for that long: one that has moved since is left alone.
func (w *Watcher[T]) judge(overrun bool, idle time.Duration) {
	if !overrun && w.currentPhase() == PhaseStreaming && w.drained() {
		w.end(w.draining.err) // what it lacks is not for it any more
		return
	}
	taken := w.taken.Get()
	stall := w.stall()
	stall.Overrun = overrun
	if idle > 0 {
		stall.Idle = idle
	}
	if stall.Phase == PhaseEnded {
		return
	}
	var verdict Verdict
	err := error(exited("StallPolicy.Judge"))
	defer func() {
		if err != nil {
			w.end(err)
		}
	}()
	err = guard("StallPolicy.Judge", func() { verdict = w.rules.policy.Judge(stall) })
	if err != nil {
		return
	}
	switch {
	case idle > 0 && w.taken.Get() != taken:
	case verdict == VerdictResync:
		w.resync()
		w.c.log(slog.LevelInfo, "watchcache: watcher resyncs", "watcher", w.name, "phase", stall.Phase,
			"idle", stall.Idle, "lag", stall.Lag, "overrun", overrun)
	case verdict == VerdictEvict || overrun:
		w.end(&StalledError{Phase: stall.Phase, Idle: stall.Idle, Lag: stall.Lag, Overrun: overrun, Position: stall.Position})
		w.c.log(slog.LevelWarn, "watchcache: watcher evicted", "watcher", w.name, "phase", stall.Phase,
			"idle", stall.Idle, "lag", stall.Lag, "overrun", overrun)
	}
}

// stall describes the watcher as of now. It needs no lock.
func (w *Watcher[T]) stall() Stall {
	position, _ := w.Position()
	s := Stall{Phase: w.currentPhase(), Delivered: w.taken.Get(), Name: w.name, Position: position}
	if s.Phase == PhaseStreaming {
		s.Lag = w.group.Lag(w.member.Cursor.Get(), w.c.ring.head.Load())
	}
	s.Idle = max(0, w.c.watchdog.Now()-w.lastProgress())
	return s
}

// resync lets the watcher start again when its consumer comes back. Until then
// it needs neither history nor a snapshot.
func (w *Watcher[T]) resync() {
	c := w.c
	c.mu.Lock()
	if w.attention.Load()&ended == 0 {
		c.registry.Park(&w.member)
		w.forget()
		w.phase.Store(uint32(PhaseInitial))
		w.attention.And(^uint32(overrun))
		w.attention.Or(resync)
	}
	c.mu.Unlock()
	w.wake()
}

// pace is what is known of when a watcher's consumer last took an event. To read
// the clock costs more than to deliver, so that a fast consumer does so now and
// then only: how many events it may take before the next reading doubles while it
// takes more than one a microsecond. A slower one reads the clock at every event:
// then the time of its last event is known exactly, which is what a limit counts
// from.
type pace struct {
	credit  uint32 // the consumer's: events it may take without a look at the clock
	granted uint32
}

const (
	fastEvent = time.Microsecond
	maxCredit = 1024
)

// looked notes that the consumer is at work, although it has taken nothing: it
// searches, or collects a batch. It reads the clock at every eighth look at least:
// what it calls may become slow at any time.
func (w *Watcher[T]) looked() {
	if w.pace.credit = min(w.pace.credit, 8); w.pace.credit > 0 {
		w.pace.credit--
		return
	}
	w.report(w.taken.Own())
}

// report notes that an event is being taken, the taken'th; the consumer has no
// credit left.
func (w *Watcher[T]) report(taken uint64) {
	now := w.c.watchdog.Now()
	elapsed := now - time.Duration(w.takenAt.Load())
	fast := elapsed > 0 && elapsed < fastEvent*time.Duration(w.pace.granted+1)
	// Time first: whoever finds the count finds the time that belongs to it, or a
	// later one.
	w.takenAt.Store(int64(now))
	w.reported.Store(taken)
	if fast {
		w.pace.granted = min(2*w.pace.granted+1, maxCredit)
		if !w.polled.Load() {
			w.poll(now)
		}
	} else {
		w.pace.granted = 0
	}
	w.pace.credit = w.pace.granted
}

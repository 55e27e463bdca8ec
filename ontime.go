package watchcache

import "time"

// seen is what the watchdog last saw of a watcher. It is the watchdog's own.
type seen struct {
	taken uint64 // events taken, for a consumer too fast for its own clock readings
	at    time.Duration
	asked time.Duration // when the policy was last asked because of idleness
}

// later is a time of the watchdog and a wait after it, which may be for ever.
func later(now, wait time.Duration) time.Duration {
	if wait > NoLimit-now {
		return NoLimit
	}
	return now + wait
}

// onTime is the watchdog's task that does what is due for a watcher at a time.
type onTime[T any] struct{ w *Watcher[T] }

func (o onTime[T]) OnTime(now time.Duration) {
	w := o.w
	if w.attention.Load()&ended != 0 {
		return
	}
	if w.seen == nil {
		w.seen = new(seen)
	}
	if p := w.plan; p != nil {
		w.onPlan(p, now)
	}
	if limit, since := w.idleSince(now); limit > 0 && now-max(since, w.seen.asked) >= limit {
		w.seen.asked = now
		w.judge(false, now-since)
	}
	w.armPlan(now)
	if limit, since := w.idleSince(now); limit > 0 {
		due := later(max(since, w.seen.asked), limit)
		w.polled.Store(false) // from here on the consumer asks for a look if it becomes fast
		if since < now && w.inexact() {
			w.polled.Store(true)
			due = min(due, now+max(limit/8, 1))
		}
		w.c.watchdog.SetBy(&w.timer, max(due, now+1))
	}
}

// poll is the consumer's: it has become too fast to read the clock at each event,
// so that the watchdog has to look every eighth of the limit.
func (w *Watcher[T]) poll(now time.Duration) {
	limit := w.rules.limits.InitialIdle
	if w.currentPhase() == PhaseStreaming {
		limit = w.rules.limits.StreamIdle
	}
	if limit > 0 && limit < NoLimit-now {
		w.polled.Store(true)
		w.c.watchdog.SetBy(&w.timer, now+max(limit/8, 1))
	}
}

// armAfter sets the timer for a watcher that begins a phase with that limit.
func (w *Watcher[T]) armAfter(now, limit time.Duration, phase Phase) {
	if limit > 0 && limit < NoLimit-now && w.currentPhase() == phase {
		w.c.watchdog.SetBy(&w.timer, now+limit)
	}
}

// armPlan sets the timer to what is next in the plan.
func (w *Watcher[T]) armPlan(now time.Duration) {
	p := w.plan
	if p == nil {
		return
	}
	next := NoLimit
	if p.every > 0 {
		next = min(next, p.nextBookmark)
	}
	if p.lead > 0 {
		next = min(next, p.lead)
	}
	if p.deadline > 0 {
		next = min(next, p.deadline)
	}
	if next < NoLimit {
		w.c.watchdog.SetBy(&w.timer, max(next, now))
	}
}

func (w *Watcher[T]) onPlan(p *plan, now time.Duration) {
	if p.every > 0 && now >= p.nextBookmark {
		p.nextBookmark = later(now, p.every)
		w.RequestBookmark()
	}
	if p.lead > 0 && now >= p.lead {
		p.lead = 0
		w.RequestBookmark()
	}
	if p.deadline > 0 && now >= p.deadline {
		p.deadline = 0
		w.c.mu.Lock()
		w.drainLocked(ErrDeadline)
		w.c.mu.Unlock()
		w.nudge()
	}
}

// idleSince returns the limit that counts in the watcher's phase, 0 for none,
// and since when there has been something to take and nothing was taken.
func (w *Watcher[T]) idleSince(now time.Duration) (limit, since time.Duration) {
	switch w.currentPhase() {
	case PhaseInitial:
		limit = w.rules.limits.InitialIdle
		if limit >= NoLimit-now || w.attention.Load()&resync != 0 {
			return 0, 0 // a parked watcher holds nothing
		}
		return limit, w.progress(now)
	case PhaseStreaming:
		limit = w.rules.limits.StreamIdle
		if limit >= NoLimit-now {
			return 0, 0
		}
		return limit, max(w.progress(now), w.behindSince(now))
	}
	return 0, 0
}

// inexact reports whether the time of the last event taken is known only as
// something between two looks of the watchdog.
func (w *Watcher[T]) inexact() bool { return w.taken.Get() != w.reported.Load() }

// progress returns when the consumer last took an event: the exact time if it
// has read the clock for it, or else when the watchdog first saw it taken.
func (w *Watcher[T]) progress(now time.Duration) time.Duration {
	reported := w.reported.Load()
	at := time.Duration(w.takenAt.Load())
	taken := w.taken.Get()
	if taken == reported {
		return at
	}
	if taken != w.seen.taken {
		w.seen.taken, w.seen.at = taken, now
	}
	return w.seen.at
}

// behindSince returns when the first event that the watcher has not taken was
// committed; now, if there is none: then the limit has not begun to count.
func (w *Watcher[T]) behindSince(now time.Duration) time.Duration {
	c := w.c
	seq, head := w.member.Cursor.Get(), c.ring.head.Load()
	if !w.group.All() {
		next, ok := w.group.Next(seq)
		if !ok {
			return now
		}
		seq = next
	}
	if seq >= head {
		return now
	}
	chunk, i := c.ring.find(seq)
	switch {
	case chunk == nil:
		return now // overrun: judged for that
	case chunk.ages != nil && chunk.ages[i] != noAge:
		return time.Duration(chunk.ages[i])
	}
	return c.watchdog.Since(chunk.slots[i].Time)
}

// lastProgress is progress for those who only want to show it.
func (w *Watcher[T]) lastProgress() time.Duration { return time.Duration(w.takenAt.Load()) }

// RequestBookmarks has a bookmark delivered, as soon as everything before it was
// taken, to every watcher that is past its initial phase.
func (c *Cache[T]) RequestBookmarks() {
	for _, w := range c.currentWatchers() {
		w.RequestBookmark()
	}
}

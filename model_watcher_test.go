package watchcache

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// stallRule is a stall policy as the model knows it.
type stallRule struct {
	policy   StallPolicy
	limits   StallLimits
	verdicts []Verdict // in turn, over and over
	heard    *hearing  // what a StallFunc was asked
}

// hearing is what a policy was asked, by writers and by the watchdog.
type hearing struct {
	mu     sync.Mutex
	stalls []Stall
}

// add returns how many came before.
func (h *hearing) add(s Stall) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stalls = append(h.stalls, s)
	return len(h.stalls) - 1
}

func (h *hearing) all() []Stall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stalls
}

// modelWatcher is what one watcher must be: which event comes next, and what it
// does when it is taken.
type modelWatcher struct {
	model *model
	selection
	rule     stallRule
	name     string
	coalesce bool

	phase   Phase
	parked  bool           // to be resynced when its consumer comes back
	initial []Event[thing] // of the initial phase, still to come
	synced  bool           // the channel is closed
	// next is the commit whose events come next, taken how many of them have.
	next, taken int
	syncUntil   int      // the commits that were there at the start
	start       Position // bookmarks lie above it
	mayBeAhead  bool     // AllowFuture
	future      bool     // start was beyond the head: nothing up to it is delivered
	position    Position
	placed      bool // it has a position
	wanted      bool // a bookmark is due
	until       int  // with draining: the commit that it may not reach
	draining    error
	drainAt     Position // where the cache was then
	hand        func()   // what taking the event does that was found and not taken

	takenAt   time.Time
	delivered uint64
	askedAt   time.Time // of idleness
	asked     []question
	touched   int // events of its selection so far
	askAgain  int // no question about lag before so many

	every              time.Duration // bookmarks
	bookmarkAt         time.Time
	leadAt, deadlineAt time.Time
	err                error    // the sentinel, or the very error
	renamed            bool     // ended by another epoch
	oldest             Position // the model's when it ended
	endedAt            time.Time
	replica            map[string]thing // coalesced: what the consumer made of its events
	windowEnd          int              // coalesced: 0, or the commits up to which events are joined
	windowKinds        map[string][]EventType
	windowFrom         uint64 // the revision of the window's last event so far
}

// question is what a policy is asked. How long a watcher is idle while streaming
// may be counted from the last event taken, or from the first not taken. Of a
// watcher that is overrun, what history has dropped may count as lag or not.
type question struct {
	Stall
	idleAtLeast time.Duration
	lagAtLeast  int
}

func (q question) describes(s Stall) bool {
	idle, lag := s.Idle, s.Lag
	s.Idle, s.Lag = q.Idle, q.Lag
	return s == q.Stall && q.idleAtLeast <= idle && idle <= q.Idle && q.lagAtLeast <= lag && lag <= q.Lag
}

func (w *modelWatcher) streams() bool { return w.phase == PhaseStreaming }

// lag returns how many changes before commit end the selection touches and the
// consumer has not put behind it.
func (w *modelWatcher) lag(end int) (events int) {
	for n := w.next; n < min(end, len(w.model.commits)); n++ {
		if w.hidden(w.model.commits[n]) {
			continue
		}
		changes := w.model.commits[n].changes
		if _, index := w.events(w.model.commits[n]); n == w.next && w.taken > 0 {
			changes = changes[index[w.taken]:]
		}
		for _, ch := range changes {
			if w.touches(ch) {
				events++
			}
		}
	}
	return events
}

func (w *modelWatcher) overrun() bool { return w.lag(w.model.first) > 0 }

// hidden reports whether a commit is not for a watcher that started in the future.
func (w *modelWatcher) hidden(c pastCommit) bool { return w.future && !before(w.start, c.at) }

// pending returns the next event of history, and what taking it does.
func (w *modelWatcher) pending() (Event[thing], func(), bool) {
	for n := w.next; n < min(w.until, len(w.model.commits)); n++ {
		c := w.model.commits[n]
		events, _ := w.events(c)
		k := 0
		if n == w.next {
			k = w.taken
		}
		if k == len(events) || w.hidden(c) {
			continue
		}
		return events[k], func() {
			if events[k].More {
				w.next, w.taken = n, k+1
			} else {
				w.next, w.taken = n+1, 0
				w.position = c.at
			}
		}, true
	}
	return Event[thing]{}, nil, false
}

// bookmark returns the bookmark that is due when nothing else is.
func (w *modelWatcher) bookmark() (Event[thing], func(), bool) {
	m := w.model
	beyond := slices.ContainsFunc(m.commits[min(w.until, len(m.commits)):], func(c pastCommit) bool { return len(c.changes) > 0 })
	at := m.head
	if beyond {
		at = w.drainAt
	}
	if !w.wanted || !before(w.start, at) {
		return Event[thing]{}, nil, false
	}
	return Event[thing]{Type: Bookmark, Revision: at.Revision}, func() { w.position = at }, true
}

// expected returns the only event that may come now, and what taking it does.
func (w *modelWatcher) expected() (ev Event[thing], take func(), ok bool) {
	switch {
	case w.phase == PhaseEnded:
		return ev, nil, false
	case w.parked:
		return Event[thing]{Type: Reset, Revision: w.model.head.Revision}, func() {}, true
	case len(w.initial) == 1:
		return w.initial[0], w.finishInitial, true
	case len(w.initial) > 0:
		return w.initial[0], w.takeInitial, true
	}
	if !w.coalesce {
		if ev, take, ok = w.pending(); ok {
			return ev, take, ok
		}
	}
	return w.bookmark()
}

// find is told each event that the consumer gets to see, and says what is wrong
// with it.
func (w *modelWatcher) find(ev Event[thing], now time.Time) error {
	if w.hand != nil {
		return fmt.Errorf("%v came before the event in hand was taken", ev)
	}
	if w.coalesce && w.streams() && ev.Type <= Deleted {
		return w.findCoalesced(ev)
	}
	want, take, ok := w.expected()
	if !ok {
		return fmt.Errorf("%v came, where nothing is to come", ev)
	}
	got := ev
	if want.Time.IsZero() {
		got.Time = want.Time // of a marker or an initial event
	}
	if got != want {
		return fmt.Errorf("%+v came, want %+v", got, want)
	}
	switch ev.Type {
	case Reset:
		w.restart(now)
	case Bookmark:
		if w.coalesce && (w.windowEnd > 0 || len(w.net(w.next, len(w.model.commits))) > 0) {
			return fmt.Errorf("a bookmark at %d came before what is pending", ev.Revision)
		}
		w.wanted = false
		w.passed()
	default:
		if w.coalesce && ev.Initial {
			w.replica[ev.Key] = ev.Object
		}
	}
	w.hand = take
	return nil
}

// take is told when the event that was found is taken.
func (w *modelWatcher) take(now time.Time) {
	take := w.hand
	w.hand = nil
	w.takenAt = now
	w.delivered++
	w.model.delivered++
	take()
	if w.streams() && !w.placed { // it was Synced
		w.placed = true
		if w.overrun() {
			w.judge(true, now)
		}
	}
	w.drained(now)
}

// passed is told when the consumer has looked at everything and sleeps.
func (w *modelWatcher) passed() {
	if end := min(w.until, len(w.model.commits)); w.next < end {
		w.replica = w.base()
		w.next, w.taken = end, 0
	}
}

// base returns what a coalescing consumer has, or would have if it had been here
// in the meantime, for one that started in the future.
func (w *modelWatcher) base() map[string]thing {
	have := maps.Clone(w.replica)
	for n := w.next; n < min(w.until, len(w.model.commits)); n++ {
		if c := w.model.commits[n]; w.hidden(c) {
			have = w.objects(c.state)
		}
	}
	return have
}

// objects are the selected objects of a state.
func (w *modelWatcher) objects(state map[string]Item[thing]) map[string]thing {
	objects := map[string]thing{}
	for _, item := range w.items(state) {
		objects[item.Key] = item.Object
	}
	return objects
}

// begin begins an initial phase with the state as it is.
func (w *modelWatcher) begin(now time.Time) {
	m := w.model
	w.phase, w.parked, w.placed, w.future, w.takenAt = PhaseInitial, false, false, false, now
	w.initial = w.selection.initial(m.state(), m.head.Revision)
	w.start = m.head // until Synced nobody sees it
	w.next, w.taken = len(m.commits), 0
	w.replica, w.windowEnd = map[string]thing{}, 0
	if w.draining == nil {
		w.until = math.MaxInt
	}
}

// resume puts the watcher after a position.
func (w *modelWatcher) resume(p Position, now time.Time) {
	m := w.model
	w.phase, w.placed, w.takenAt = PhaseStreaming, true, now
	w.start, w.position = p, p
	w.next = m.after(p)
	w.syncUntil, w.until = len(m.commits), math.MaxInt
	w.replica = w.objects(m.commits[w.next-1].state)
}

func (w *modelWatcher) restart(now time.Time) {
	w.begin(now)
	w.wanted = false
}

func (w *modelWatcher) takeInitial() {
	if !w.parked { // or it was in hand when the verdict came
		w.initial = w.initial[1:]
	}
}

func (w *modelWatcher) finishInitial() {
	w.synced = true
	if w.parked {
		return
	}
	w.initial, w.phase, w.position, w.askAgain = nil, PhaseStreaming, w.start, 0
}

// judge is the stall policy's turn.
func (w *modelWatcher) judge(overrun bool, now time.Time) {
	if !overrun && w.lacksNothing() {
		w.end(w.draining, now)
		return
	}
	s := Stall{Phase: w.phase, Idle: now.Sub(w.takenAt), Overrun: overrun, Delivered: w.delivered, Name: w.name}
	if w.placed {
		s.Position = w.position
	}
	if w.streams() {
		s.Lag = w.lag(math.MaxInt)
	}
	q := question{s, s.Idle, s.Lag}
	if overrun {
		q.lagAtLeast -= w.lag(w.model.first)
	}
	if s.Lag > 0 {
		q.idleAtLeast = min(s.Idle, now.Sub(w.behindSince()))
	}
	verdict := w.rule.verdicts[len(w.asked)%len(w.rule.verdicts)]
	w.asked = append(w.asked, q)
	switch {
	case verdict == VerdictResync:
		w.parked, w.phase, w.initial = true, PhaseInitial, nil
	case verdict == VerdictEvict || overrun:
		if s.Phase == PhaseInitial {
			w.end(ErrStalled, now)
		} else {
			w.end(ErrLagged, now)
		}
	}
}

// lagging is told each commit.
func (w *modelWatcher) lagging(c pastCommit, now time.Time) {
	before := w.touched
	for _, ch := range c.changes {
		if w.touches(ch) {
			w.touched++
		}
	}
	if w.streams() && w.touched > before && w.rule.limits.Lag > 0 &&
		w.lag(math.MaxInt) >= w.rule.limits.Lag && w.touched >= w.askAgain {
		w.askAgain = w.touched + w.rule.limits.Lag
		w.judge(false, now)
	}
}

// drain lets the watcher end with err when it has taken what is there now.
func (w *modelWatcher) drain(err error, now time.Time) {
	if w.phase != PhaseEnded && w.draining == nil {
		w.draining, w.until, w.drainAt = err, len(w.model.commits), w.model.head
		w.wanted = w.wanted || err == ErrClosed && w.every > 0
	}
	w.drained(now)
}

// drained ends the watcher if it drains and nothing is left, whether or not its
// consumer comes by again.
func (w *modelWatcher) drained(now time.Time) {
	if w.lacksNothing() && !w.wanted {
		w.end(w.draining, now)
	}
}

// lacksNothing reports whether the watcher drains and has all that it will get, a
// bookmark perhaps left aside.
func (w *modelWatcher) lacksNothing() bool {
	return w.draining != nil && w.streams() && w.lag(w.until) == 0
}

// end ends the watcher, once.
func (w *modelWatcher) end(err error, now time.Time) {
	if w.phase == PhaseEnded {
		return
	}
	w.phase, w.err, w.endedAt = PhaseEnded, err, now
	e := &w.model.ended
	switch err {
	case ErrStopped:
		e.Stopped++
	case ErrClosed:
		e.Closed++
	case ErrExpired:
		e.Expired++
	case ErrStalled:
		e.Stalled++
	case ErrLagged:
		e.Lagged++
	case ErrDeadline:
		e.Deadline++
	default:
		e.Other++
	}
}

// expire ends the watcher because of a relist that leaves nothing before oldest.
func (w *modelWatcher) expire(oldest Position, now time.Time) {
	if w.phase != PhaseEnded {
		w.renamed, w.oldest = oldest.Epoch != w.model.epoch, oldest
		w.end(ErrExpired, now)
	}
}

// due returns when something is due next, if anything is.
func (w *modelWatcher) due() (times []time.Time) {
	if w.phase == PhaseEnded {
		return nil
	}
	for _, at := range []time.Time{w.bookmarkAt, w.leadAt, w.deadlineAt, w.idleAt()} {
		if !at.IsZero() {
			times = append(times, at)
		}
	}
	return times
}

// idleAt returns when the policy is to be asked about idleness.
func (w *modelWatcher) idleAt() time.Time {
	since, limit := w.takenAt, time.Duration(0)
	switch {
	case w.parked, w.phase == PhaseEnded: // it holds nothing
	case w.phase == PhaseInitial:
		limit = w.rule.limits.InitialIdle
	case w.lag(math.MaxInt) > 0:
		limit = w.rule.limits.StreamIdle
		if behind := w.behindSince(); behind.After(since) {
			since = behind
		}
	}
	if limit == 0 {
		return time.Time{}
	}
	if w.askedAt.After(since) {
		since = w.askedAt
	}
	return since.Add(limit)
}

// behindSince returns when the first commit was made that the consumer lags behind.
func (w *modelWatcher) behindSince() time.Time {
	for end := w.next; ; end++ {
		if w.lag(end+1) > 0 {
			return w.model.commits[end].made
		}
	}
}

// onTime does what is due.
func (w *modelWatcher) onTime(now time.Time) {
	due := func(at time.Time) bool { return w.phase != PhaseEnded && !at.IsZero() && !now.Before(at) }
	if due(w.bookmarkAt) {
		w.bookmarkAt = now.Add(w.every)
		w.request()
	}
	if due(w.leadAt) {
		w.leadAt = time.Time{}
		w.request()
	}
	if due(w.deadlineAt) {
		w.deadlineAt = time.Time{}
		w.drain(ErrDeadline, now)
	}
	if due(w.idleAt()) {
		w.askedAt = now
		w.judge(false, now)
	}
}

// request wants a bookmark; there is none before the state is known.
func (w *modelWatcher) request() { w.wanted = w.wanted || w.streams() }

// net returns what a coalescing watcher must hear of each key for some commits:
// a deletion is kept apart from a put that follows, and what came and went is
// not told.
func (w *modelWatcher) net(from, to int) map[string][]EventType {
	known, deleted := map[string]bool{}, map[string]bool{}
	for key := range w.base() {
		known[key] = true
	}
	now, changed := maps.Clone(known), map[string]bool{}
	for n := from; n < min(to, w.until, len(w.model.commits)); n++ {
		events, _ := w.events(w.model.commits[n])
		if w.hidden(w.model.commits[n]) {
			continue
		}
		for _, ev := range events {
			changed[ev.Key], now[ev.Key] = true, ev.Type != Deleted
			deleted[ev.Key] = deleted[ev.Key] || ev.Type == Deleted
		}
	}
	kinds := map[string][]EventType{}
	for key := range changed {
		switch {
		case known[key] && now[key] && !deleted[key]:
			kinds[key] = []EventType{Modified}
		case known[key] && now[key]:
			kinds[key] = []EventType{Deleted, Added}
		case known[key]:
			kinds[key] = []EventType{Deleted}
		case now[key]:
			kinds[key] = []EventType{Added}
		}
	}
	return kinds
}

// findCoalesced is find for an event of a coalescing watcher. Which of several
// events of a key it gets is its own business; what they add up to is not.
func (w *modelWatcher) findCoalesced(ev Event[thing]) error {
	m := w.model
	if w.windowEnd == 0 {
		w.windowEnd, w.windowKinds, w.windowFrom = min(w.until, len(m.commits)), w.net(w.next, len(m.commits)), 0
		w.replica = w.base()
	}
	last := m.commits[0] // of the window, that the selection touches
	genuine := false
	for _, c := range m.commits[w.next:w.windowEnd] {
		for _, ch := range c.changes {
			if w.touches(ch) {
				last = c
			}
			seen, _ := w.event(ch)
			genuine = genuine || c.at.Revision == ev.Revision && c.time.Equal(ev.Time) &&
				ch.key == ev.Key && (seen.Object == ev.Object && seen.Cause == ev.Cause)
		}
	}
	old, known := w.replica[ev.Key]
	kinds := w.windowKinds[ev.Key]
	switch {
	case w.next >= w.windowEnd || !genuine:
		return fmt.Errorf("%+v came, which no change in commits %d to %d is", ev, w.next, w.windowEnd)
	case len(kinds) == 0 || kinds[0] != ev.Type:
		return fmt.Errorf("%+v came, want of this key one after the other %v", ev, kinds)
	case ev.Revision < w.windowFrom:
		return fmt.Errorf("%+v came after an event of revision %d", ev, w.windowFrom)
	case ev.Type == Modified && (!known || old != ev.Prev):
		return fmt.Errorf("%+v came, where the consumer has %v", ev, old)
	}
	w.windowFrom = ev.Revision
	if w.windowKinds[ev.Key] = kinds[1:]; len(kinds) == 1 {
		delete(w.windowKinds, ev.Key)
	}
	if ev.Type == Deleted {
		delete(w.replica, ev.Key)
	} else {
		w.replica[ev.Key] = ev.Object
	}
	if ev.More != (len(w.windowKinds) > 0) {
		return fmt.Errorf("%+v came, with still to come: %v", ev, w.windowKinds)
	}
	w.hand = func() {}
	if end := w.windowEnd; !ev.More {
		w.windowEnd = 0
		w.hand = func() { w.next, w.position = end, last.at }
		if want := w.objects(m.commits[end-1].state); !maps.Equal(w.replica, want) {
			return fmt.Errorf("the replayed events give %v at %v, want %v", w.replica, last.at, want)
		}
	}
	return nil
}

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// consumer is how a tracked watcher is consumed.
type consumer int

const (
	byEvents consumer = iota
	byBatches
	byNext
	byTryNext
	byPipe
)

func (c consumer) String() string {
	return [...]string{"by Events", "by Batches", "by Next", "by TryNext and Wait", "by Pipe"}[c]
}

// gate is where a consumer waits in its loop body until it may go on.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	open    bool
	permits int
	leave   bool
	waiting bool
}

func newGate() *gate {
	g := &gate{}
	g.changed.L = &g.mu
	return g
}

// pass waits; false: leave the loop.
func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.open && g.permits == 0 && !g.leave {
		g.waiting = true
		g.changed.Wait()
	}
	g.waiting = false
	if !g.open && !g.leave {
		g.permits--
	}
	return !g.leave
}

func (g *gate) set(change func(*gate)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
	g.changed.Broadcast()
}

func (g *gate) held() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// tracked is a watcher, its consumer, and what the model says of both.
type tracked struct {
	*modelWatcher
	w      *Watcher[thing]
	kind   consumer
	buffer int // byPipe
	gate   *gate
	cancel context.CancelCauseFunc
	doneAt chan time.Time // when Done was closed

	mu       sync.Mutex
	log      []sighting
	received int // byPipe: out of the channel

	settled int       // sightings that the model was told
	over    bool      // the consumer has seen the end
	left    bool      // it was told to leave
	ended   time.Time // when Done was closed
}

// sighting is one event, or the end, as the consumer got it.
type sighting struct {
	at    time.Time
	event Event[thing]
	err   error
	batch uint64 // byBatches: the batch's revision
	whole bool   // byBatches: the batch's last
}

func (t *tracked) note(s sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.at = time.Now()
	t.log = append(t.log, s)
}

// consume is the consumer, until the watcher ends or the gate has it leave.
func (t *tracked) consume() {
	if t.kind != byPipe && !t.gate.pass() {
		t.w.Stop()
		return
	}
	switch t.kind {
	case byEvents:
		for ev, err := range t.w.Events() {
			if t.note(sighting{event: ev, err: err}); err == nil && !t.gate.pass() {
				break
			}
		}
	case byBatches:
		for b, err := range t.w.Batches() {
			for i, ev := range b.Events {
				t.note(sighting{event: ev, batch: b.Revision, whole: i == len(b.Events)-1})
			}
			if err != nil {
				t.note(sighting{err: err})
			} else if !t.gate.pass() {
				break
			}
		}
	case byPipe:
		t.consumePipe()
	default:
		t.consumeOneByOne()
	}
}

// consumeOneByOne uses Next, or TryNext and Wait.
func (t *tracked) consumeOneByOne() {
	defer t.w.Stop()
	for {
		var s sighting
		if t.kind == byNext { // its context bounds the call, not the watcher
			ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
			s.event, s.err = t.w.Next(ctx)
			cancel()
			if errors.Is(s.err, context.DeadlineExceeded) {
				continue
			}
		} else {
			var ok bool
			if s.event, ok, s.err = t.w.TryNext(); !ok && s.err == nil {
				<-t.w.Wait()
				continue
			}
		}
		if t.note(s); s.err != nil || !t.gate.pass() {
			return
		}
	}
}

// consumePipe notes an event when it is found, before it is sent and so taken.
func (t *tracked) consumePipe() {
	defer t.w.Stop()
	events := Pipe(t.w, t.buffer, func(ev Event[thing]) (Event[thing], bool) {
		t.note(sighting{event: ev})
		return ev, true
	})
	for t.gate.pass() {
		ev, ok := <-events
		if !ok {
			t.note(sighting{err: t.w.Err()})
			return
		}
		t.mu.Lock()
		if seen := t.log[t.received].event; seen != ev {
			panic(fmt.Sprintf("the channel gave %+v, sent was %+v", ev, seen))
		}
		t.received++
		t.mu.Unlock()
	}
}

// settle tells the model what the consumer saw, at rest now, and compares.
func (t *tracked) settle(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := math.MaxInt // how many of the sightings
	if t.kind == byPipe {
		taken = t.received + t.buffer
	}
	if t.hand != nil && t.settled <= taken && t.phase != PhaseEnded {
		t.take(now)
	}
	for ; t.settled < len(t.log); t.settled++ {
		s := t.log[t.settled]
		switch {
		case s.at != now:
			return fmt.Errorf("%+v came %v ago, when nothing was due", s.event, now.Sub(s.at))
		case t.over:
			return fmt.Errorf("%+v, %v came after the end", s.event, s.err)
		case s.err != nil:
			if t.over = true; s.event != (Event[thing]{}) {
				return fmt.Errorf("%+v came with the error %v, want the zero Event", s.event, s.err)
			}
			continue
		}
		if err := t.find(s.event, now); err != nil {
			return err
		}
		if t.settled < taken {
			t.take(now)
		}
		if err := t.checkBatch(s); err != nil {
			return err
		}
	}
	if t.phase != PhaseEnded && t.hand == nil && (t.kind == byPipe || !t.gate.held()) {
		if err := t.asleep(now); err != nil {
			return err
		}
	}
	return t.compare()
}

// checkBatch checks that a batch is a whole commit, a run of initial events, or a
// marker.
func (t *tracked) checkBatch(s sighting) error {
	switch {
	case t.kind != byBatches:
	case s.event.Type > Deleted && (!s.whole || s.batch != s.event.Revision):
		return fmt.Errorf("%+v came in a batch at %d with others", s.event, s.batch)
	case s.event.Initial && s.batch != t.start.Revision:
		return fmt.Errorf("%+v came in a batch at %d, want the snapshot's revision %d", s.event, s.batch, t.start.Revision)
	case s.event.Type <= Deleted && !s.event.Initial && s.whole == s.event.More:
		return fmt.Errorf("the batch at %d ended with %+v, in the middle of a commit", s.batch, s.event)
	case s.whole && !s.event.Initial && s.event.Type <= Deleted && s.batch != t.position.Revision:
		return fmt.Errorf("a batch is at %d, want %v", s.batch, t.position)
	}
	return nil
}

// asleep checks that a consumer that is waiting for more has everything.
func (t *tracked) asleep(now time.Time) error {
	if ev, _, ok := t.expected(); ok {
		return fmt.Errorf("nothing came, want %+v", ev)
	}
	if net := t.net(t.next, len(t.model.commits)); t.coalesce && len(net) > 0 {
		return fmt.Errorf("nothing came, want %v", net)
	}
	t.passed()
	t.wanted = false
	if t.draining != nil {
		t.end(t.draining, now)
	}
	return nil
}

// compare compares what anyone may ask the watcher with the model.
func (t *tracked) compare() error {
	err := t.w.Err()
	if err == nil != (t.phase != PhaseEnded) || err != nil && !errors.Is(err, t.err) {
		return fmt.Errorf("Err is %v, want %v", err, t.err)
	}
	if err != nil {
		if err := t.compareEnd(err); err != nil {
			return err
		}
	}
	position, placed := t.w.Position()
	if placed != t.placed || placed && position != t.position {
		return fmt.Errorf("Position is %v, %v, want %v, %v", position, placed, t.position, t.placed)
	}
	if t.rule.heard != nil {
		heard := t.rule.heard.all()
		if len(heard) != len(t.asked) {
			return fmt.Errorf("the policy was asked %+v, want %+v", heard, t.asked)
		}
		for i, s := range heard {
			if !t.asked[i].describes(s) {
				return fmt.Errorf("the policy was asked %+v, want %+v", s, t.asked[i])
			}
		}
	}
	if t.phase == PhaseEnded {
		return nil
	}
	t.synced = t.synced || t.streams() && t.lag(t.syncUntil) == 0
	if closed := isClosed(t.w.Synced()); closed != t.synced {
		return fmt.Errorf("Synced closed is %v, want %v", closed, t.synced)
	}
	return nil
}

func (t *tracked) compareEnd(err error) error {
	var expired *ExpiredError
	var stalled *StalledError
	switch {
	case !isClosed(t.w.Done()):
		return fmt.Errorf("ended with %v, and Done is open", err)
	case errors.As(err, &expired) && (errors.Is(err, ErrEpoch) != t.renamed || expired.Oldest != t.oldest):
		return fmt.Errorf("ended with %v, want the oldest position %v, and ErrEpoch: %v", err, t.oldest, t.renamed)
	case errors.As(err, &stalled) && !t.asked[len(t.asked)-1].describes(Stall{
		stalled.Phase, stalled.Idle, stalled.Lag, stalled.Overrun, t.asked[len(t.asked)-1].Delivered, t.name, stalled.Position}):
		return fmt.Errorf("ended with %+v, want %+v", stalled, t.asked[len(t.asked)-1])
	case !t.gate.held() && !t.left && !t.over:
		return fmt.Errorf("ended with %v, and its waiting consumer was not told", err)
	}
	if t.ended.IsZero() {
		t.ended = <-t.doneAt
	}
	if t.ended != t.endedAt {
		return fmt.Errorf("ended with %v at %v, want %v", err, t.ended, t.endedAt)
	}
	return nil
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

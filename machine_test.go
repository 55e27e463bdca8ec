package watchcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestMachine does random things to a cache and its watchers, one after the
// other, and compares everything that can be seen with a naive model after each:
// contract 1 to 15 of the package comment. Time is a bubble's: it goes on only
// when the machine says so, and stops whenever the model says that something is
// due. So it is also checked that things happen at that very moment.
//
// What to read: model is the cache as it must be, modelWatcher a watcher as it
// must be, tracked a watcher with a consumer that can be stopped in its loop
// body, and machine what is done to them.
//
// A round is as many checks as -rapid.checks says. What is rare needs more:
// go test -run TestMachine/round=1$ -rapid.checks=20000
func TestMachine(t *testing.T) {
	for round := range 25 {
		t.Run(fmt.Sprintf("round=%d", round+1), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, runMachine) })
		})
	}
}

func runMachine(t *rapid.T) {
	m := newMachine(t)
	t.Cleanup(m.release)
	t.Repeat(rapid.StateMachineActions(m))
	m.finish(t)
}

// machine is one cache under test. Its exported methods are what is done to it.
type machine struct {
	c         *Cache[thing]
	model     *model
	watchers  []*tracked
	positions []Position // that were given out
	epochs    map[string]bool
	left      map[string]bool // the source's, that were left for others
	past      []pastInterval
	serial    int
	names     int
}

func newMachine(t *rapid.T) *machine {
	s := drawSettings(t)
	c, err := New(s.options("e"))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	m := &machine{c: c, model: newModel(s, "e"), positions: []Position{{}, {Epoch: "elsewhere", Revision: 1}}, epochs: map[string]bool{"e": true}, left: map[string]bool{}}
	time.Sleep(time.Second)
	if s.mirror {
		m.checkNotReady(t)
		m.relist(t, Position{Revision: rapid.Uint64Range(0, 9).Draw(t, "first revision")})
	}
	m.settle(t)
	return m
}

// settle lets everybody come to rest and compares the watchers with the model.
func (m *machine) settle(t *rapid.T) {
	synctest.Wait()
	if got := m.c.Position(); got != m.model.head {
		t.Fatalf("Position is %v, want %v", got, m.model.head)
	}
	if got := m.c.Oldest(); got != m.model.oldest {
		t.Fatalf("Oldest is %v, want %v", got, m.model.oldest)
	}
	for _, w := range m.watchers {
		if err := w.settle(time.Now()); err != nil {
			t.Fatalf("%s, %v, consumed %v: %s", w.name, w.phase, w.kind, m.named(err))
		}
		if w.placed && !slices.Contains(m.positions, w.position) {
			m.positions = append(m.positions, w.position)
		}
	}
}

// named is an error's text with the names that the cache made up replaced: the
// same failure must read the same each time, or it is not shrunk.
func (m *machine) named(err error) string {
	text := err.Error()
	for epoch := range m.epochs {
		if source, madeUp, ok := strings.Cut(epoch, "~"); ok {
			text = strings.ReplaceAll(text, madeUp, "NEW")
			text = strings.ReplaceAll(text, source+"%7E", source+"~")
		}
	}
	return text
}

// Write makes some commits.
func (m *machine) Write(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "commits") {
		m.write(t, m.drawChanges(t))
		m.settle(t)
	}
}

func (m *machine) write(t *rapid.T, changes []Change[thing]) {
	head, now := m.model.head, time.Now()
	at := Position{Epoch: head.Epoch, Revision: head.Revision + 1}
	if len(changes) == 1 && !m.model.mirror && rapid.Bool().Draw(t, "shortcut") {
		m.writeShortcut(t, changes[0], at)
		return
	}
	commit := Commit[thing]{Changes: changes}
	switch {
	case len(changes) > 0 && head.Revision > 0 && chance(t, 5, "continues"):
		commit.Continues = true
		at = Position{Epoch: head.Epoch, Revision: head.Revision, Part: head.Part + 1}
		commit.Revision = head.Revision
	case m.model.mirror || rapid.Bool().Draw(t, "numbered"):
		at.Revision += rapid.Uint64Range(0, 2).Draw(t, "gap")
		commit.Revision = at.Revision
	}
	if m.model.sourceTimes {
		commit.Time = now.Add(-time.Hour)
	}
	revision, err := m.c.Apply(commit)
	if err != nil || revision != at.Revision {
		t.Fatalf("Apply(%+v) = %d, %v, want %d", commit, revision, err, at.Revision)
	}
	m.model.apply(at, changes, commit.Time, now)
}

func (m *machine) writeShortcut(t *rapid.T, ch Change[thing], at Position) {
	var revision uint64
	var err error
	if ch.Delete {
		if revision, err = m.c.Delete(ch.Key); errors.Is(err, ErrNotFound) {
			if _, ok := m.model.state()[ch.Key]; ok {
				t.Fatalf("Delete(%q): %v, want its revision", ch.Key, err)
			}
			return
		}
	} else {
		revision, err = m.c.Put(ch.Key, ch.Object)
	}
	if err != nil || revision != at.Revision {
		t.Fatalf("%+v by its shortcut = %d, %v, want %d", ch, revision, err, at.Revision)
	}
	m.model.apply(at, []Change[thing]{ch}, time.Time{}, time.Now())
}

// Progress moves the head without a commit.
func (m *machine) Progress(t *rapid.T) {
	revision := m.model.head.Revision + rapid.Uint64Range(0, 3).Draw(t, "further")
	if err := m.c.Progress(revision); err != nil {
		t.Fatalf("Progress(%d): %v", revision, err)
	}
	m.model.progress(revision)
	m.settle(t)
}

// Relist replaces the state, in every relation to the head.
func (m *machine) Relist(t *rapid.T) {
	if !m.model.relists {
		return
	}
	at := Position{Revision: m.model.head.Revision, Part: m.model.head.Part}
	switch rapid.SampledFrom([]string{"higher", "higher", "same", "lower", "foreign"}).Draw(t, "relist") {
	case "higher":
		at.Revision += rapid.Uint64Range(1, 6).Draw(t, "higher by")
		at.Part = 0
		if chance(t, 3, "part") {
			at.Part = rapid.Uint32Range(1, 3).Draw(t, "part")
		}
	case "same":
		at.Part = rapid.Uint32Range(0, at.Part+2).Draw(t, "the head's part, or another")
	case "lower":
		at.Part = 0
		at.Revision -= min(at.Revision, rapid.Uint64Range(1, 4).Draw(t, "lower by"))
	case "foreign":
		at.Epoch = rapid.SampledFrom([]string{"e", "f", "g"}).Draw(t, "epoch")
	}
	m.relist(t, at)
	m.settle(t)
}

func (m *machine) relist(t *rapid.T, at Position) {
	items := m.drawListing(t, at.Revision)
	if err := m.c.Replace(at, slicePairs(items, nil)); err != nil {
		t.Fatalf("Replace(%v, %v): %v", at, items, err)
	}
	was, named := m.model, m.c.Position().Epoch
	epoch, head, oldest := was.epoch, was.head, was.oldest
	native := was.ready && (at.Epoch == "" || at.Epoch == was.epoch || at.Epoch == was.sourceEpoch) && (at.Revision > 0 || was.mirror)
	again := at.Epoch != "" && at.Epoch != epoch && at.Epoch != was.sourceEpoch && m.left[at.Epoch]
	if was.ready && at.Epoch != "" && at.Epoch != epoch && at.Epoch != was.sourceEpoch {
		m.left[was.sourceEpoch] = true
	}
	was.relist(at, items, named, time.Now())
	// The source's numbering, and a position that was given out already.
	lower := native && !before(head, at) && was.oldest != oldest
	switch {
	case again && m.epochs[named]:
		t.Fatalf("after Replace at %v, whose epoch was left before, the epoch is %q, want one that never was", at, named)
	case again:
	case lower && m.epochs[named]:
		t.Fatalf("after Replace at %v, at or before the head, the epoch is %q, want one that never was", at, named)
	case !lower && at.Epoch != "" && at.Epoch != was.sourceEpoch && at.Epoch != epoch:
		t.Fatalf("after Replace at %v the source's epoch is %q", at, was.sourceEpoch)
	}
	m.epochs[named] = true
}

// drawListing draws a listing near the current state.
func (m *machine) drawListing(t *rapid.T, most uint64) (items []Item[thing]) {
	for _, key := range keys {
		item, known := m.model.state()[key]
		switch rapid.SampledFrom([]string{"keep", "keep", "keep", "drop", "put"}).Draw(t, "listed") {
		case "keep":
			if !known {
				continue
			}
		case "drop":
			continue
		case "put":
			item = Item[thing]{Key: key, Object: m.drawThing(t), Revision: math.MaxUint64}
		}
		if item.Revision > most || chance(t, 4, "touched") {
			item.Revision = rapid.Uint64Range(0, most).Draw(t, "item's revision")
		}
		items = append(items, item)
	}
	return rapid.Permutation(items).Draw(t, "order")
}

// slicePairs is a listing that fails with err, if there is one, at its end.
func slicePairs(items []Item[thing], err error) iter.Seq2[Item[thing], error] {
	return func(yield func(Item[thing], error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
		if err != nil {
			yield(Item[thing]{}, err)
		}
	}
}

// Trim raises oldest.
func (m *machine) Trim(t *rapid.T) {
	p := m.drawPosition(t)
	err := m.c.Trim(p)
	var want error
	switch {
	case p.Epoch != m.model.epoch:
		want = ErrEpoch
	case before(m.model.head, p):
		want = ErrFuture
	}
	if !errors.Is(err, want) {
		t.Fatalf("Trim(%v) with the head at %v: %v, want %v", p, m.model.head, err, want)
	}
	if want == nil {
		m.model.trim(p, time.Now())
	}
	m.settle(t)
}

// Watch starts a watcher.
func (m *machine) Watch(t *rapid.T) {
	opts, w := m.drawWatch(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	watcher, err := m.c.Watch(ctx, opts)
	if want := m.watchError(w); want != nil || err != nil {
		cancel(nil)
		if !errors.Is(err, want) || want == nil {
			t.Fatalf("Watch(%+v): %v, want %v", opts, err, want)
		}
		var expired *ExpiredError
		if errors.As(err, &expired) && (expired.Requested != w.start || expired.Oldest != m.model.oldest || errors.Is(err, ErrEpoch) != (w.start.Epoch != m.model.epoch)) {
			t.Fatalf("Watch(%+v): %#v, want it about %v and the oldest position %v", opts, expired, w.start, m.model.oldest)
		}
		return
	}
	tr := &tracked{
		modelWatcher: w, w: watcher, gate: newGate(), cancel: cancel, doneAt: make(chan time.Time, 1),
		kind: rapid.SampledFrom([]consumer{byEvents, byEvents, byBatches, byNext, byTryNext, byPipe}).Draw(t, "consumer"),
	}
	if tr.kind == byPipe {
		tr.buffer = rapid.IntRange(0, 3).Draw(t, "buffer")
	}
	tr.gate.open = rapid.Bool().Draw(t, "open")
	go func() {
		<-watcher.Done()
		tr.doneAt <- time.Now()
	}()
	go tr.consume()
	m.model.watchers = append(m.model.watchers, w)
	m.watchers = append(m.watchers, tr)
	w.onTime(time.Now()) // a lead may be past already
	m.settle(t)
}

// watchError returns the error that Watch must give.
func (m *machine) watchError(w *modelWatcher) error {
	if m.model.maxWatchers > 0 && m.living() >= m.model.maxWatchers {
		return ErrTooManyWatchers
	}
	if w.phase == PhaseInitial {
		return nil
	}
	err := m.model.resumable(w.start)
	if err == ErrFuture && w.mayBeAhead {
		w.future = true
		return nil
	}
	return err
}

func (m *machine) living() (n int) {
	for _, w := range m.watchers {
		if w.phase != PhaseEnded {
			n++
		}
	}
	return n
}

// Consume moves some consumers' gates.
func (m *machine) Consume(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "consumers") {
		w := m.drawWatcher(t)
		if w == nil {
			return
		}
		switch rapid.SampledFrom([]string{"open", "shut", "step", "step", "step"}).Draw(t, "gate") {
		case "open":
			w.gate.set(func(g *gate) { g.open = true })
		case "shut":
			w.gate.set(func(g *gate) { g.open, g.permits = false, 0 })
		case "step":
			n := rapid.IntRange(1, 4).Draw(t, "events")
			w.gate.set(func(g *gate) { g.permits += n })
		}
		m.settle(t)
	}
}

func (m *machine) drawWatcher(t *rapid.T) *tracked {
	if len(m.watchers) == 0 {
		return nil
	}
	return m.watchers[rapid.IntRange(0, len(m.watchers)-1).Draw(t, "watcher")]
}

// End ends a watcher from outside, or has its consumer leave.
func (m *machine) End(t *rapid.T) {
	w := m.drawWatcher(t)
	if w == nil {
		return
	}
	reason := ErrStopped
	switch rapid.SampledFrom([]string{"stop", "cancel", "leave"}).Draw(t, "how") {
	case "stop":
		w.w.Stop()
		w.w.Stop()
	case "cancel":
		reason = errors.New("the watch's context ended")
		w.cancel(reason)
	case "leave":
		if !w.gate.held() {
			return // its consumer is not in the loop body
		}
		w.left = true
		w.gate.set(func(g *gate) { g.leave = true })
	}
	w.end(reason, time.Now())
	m.settle(t)
}

// Bookmarks asks for bookmarks.
func (m *machine) Bookmarks(t *rapid.T) {
	if chance(t, 2, "of all") {
		m.c.RequestBookmarks()
		for _, w := range m.watchers {
			w.request()
		}
	} else if w := m.drawWatcher(t); w != nil {
		w.w.RequestBookmark()
		w.request()
	}
	m.settle(t)
}

// Advance lets time go on, from one moment at which something is due to the next.
func (m *machine) Advance(t *rapid.T) {
	end := time.Now().Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
	for time.Now().Before(end) {
		next := end
		if at, ok := m.model.ages(); ok && at.Before(next) {
			next = at
		}
		for _, w := range m.watchers {
			for _, at := range w.due() {
				if at.Before(next) {
					next = at
				}
			}
		}
		if !next.After(time.Now()) {
			t.Fatalf("the model has left undone what was due at %v", next)
		}
		time.Sleep(time.Until(next))
		m.model.drop(next)
		for _, w := range m.watchers {
			w.onTime(next)
		}
		m.settle(t)
	}
}

// BadInput does what is refused, and changes nothing.
func (m *machine) BadInput(t *rapid.T) {
	head := m.model.head
	if head.Revision == 0 {
		return // no revision is below it
	}
	x := m.drawThing(t)
	apply := func(commit Commit[thing]) error { _, err := m.c.Apply(commit); return err }
	watch := func(opts WatchOptions[thing]) error { _, err := m.c.Watch(context.Background(), opts); return err }
	broken := errors.New("the listing broke")
	next := Position{Revision: head.Revision + 1}
	inputs := []struct {
		what string
		err  error
		want error
	}{
		{"an empty key", apply(Commit[thing]{Revision: next.Revision, Changes: []Change[thing]{{Key: "a", Object: x}, {Object: x}}}), ErrInvalidKey},
		{"the head's revision again", apply(Commit[thing]{Revision: head.Revision, Changes: []Change[thing]{{Key: "a", Object: x}}}), ErrRevisionOrder},
		{"to continue another revision", apply(Commit[thing]{Revision: head.Revision + 1, Continues: true}), ErrRevisionOrder},
		{"a listing that breaks", m.c.Replace(next, slicePairs([]Item[thing]{{Key: "a", Object: x}}, broken)), broken},
		{"a key listed twice", m.c.Replace(next, slicePairs([]Item[thing]{{Key: "a", Object: x}, {Key: "a", Object: x}}, nil)), ErrInvalidKey},
		{"an empty key in a listing", m.c.Replace(next, slicePairs([]Item[thing]{{Object: x}}, nil)), ErrInvalidKey},
		{"an unknown index", watch(WatchOptions[thing]{Index: IndexValue{"none", "x"}}), ErrInvalidOption},
		{"a key and a prefix", watch(WatchOptions[thing]{Key: "a", Prefix: "b"}), ErrInvalidOption},
	}
	for _, in := range inputs {
		if !errors.Is(in.err, in.want) {
			t.Fatalf("%s: %v, want %v", in.what, in.err, in.want)
		}
	}
	for _, w := range m.watchers {
		if w.kind <= byBatches && !w.gate.held() && w.phase != PhaseEnded {
			if _, _, err := w.w.TryNext(); !errors.Is(err, ErrInUse) {
				t.Fatalf("TryNext beside a loop: %v, want ErrInUse", err)
			}
		}
	}
	m.settle(t)
}

// release lets every goroutine end, also after a failure.
func (m *machine) release() {
	m.c.Close()
	for _, w := range m.watchers {
		w.cancel(nil)
		w.gate.set(func(g *gate) { g.leave = true })
	}
}

// finish ends the cache, one way or another, and checks that nothing is left.
func (m *machine) finish(t *rapid.T) {
	if rapid.Bool().Draw(t, "shut down") {
		m.shutdown(t)
	}
	for range 2 {
		if err := m.c.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	for _, w := range m.watchers {
		w.end(ErrClosed, time.Now())
	}
	m.settle(t)
	for _, w := range m.watchers {
		w.gate.set(func(g *gate) { g.open = true })
	}
	m.settle(t) // everybody is told why
	m.Check(t)
	_, apply := m.c.Apply(Commit[thing]{Revision: m.model.head.Revision + 1})
	_, watch := m.c.Watch(context.Background(), WatchOptions[thing]{})
	for what, err := range map[string]error{
		"Apply": apply, "Watch": watch, "Progress": m.c.Progress(math.MaxUint64), "Trim": m.c.Trim(m.model.head),
		"Replace": m.c.Replace(Position{Revision: math.MaxUint64}, slicePairs(nil, nil)),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("%s after Close: %v, want ErrClosed", what, err)
		}
	}
	if groups, timers := m.c.registry.Groups(), m.c.watchdog.Timers(); len(m.c.watchers) > 0 || groups > 0 || timers > 0 {
		t.Fatalf("after Close %d watchers, %d groups and %d timers are left, want none", len(m.c.watchers), groups, timers)
	}
}

// shutdown lets watchers drain: some consumers come back, some do not.
func (m *machine) shutdown(t *rapid.T) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- m.c.Shutdown(ctx) }()
	synctest.Wait()
	for _, w := range m.watchers {
		w.drain(ErrClosed, time.Now())
	}
	m.settle(t)
	for _, w := range m.watchers {
		if rapid.Bool().Draw(t, "comes back") {
			w.gate.set(func(g *gate) { g.open = true })
			m.settle(t)
		}
	}
	var want error
	if m.living() > 0 {
		want = context.Canceled
	}
	cancel()
	if err := <-result; !errors.Is(err, want) {
		t.Fatalf("Shutdown: %v, want %v", err, want)
	}
}

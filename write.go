package watchcache

import (
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/watchcache/watchcache/internal/ranges"
)

// Put gives a key a new object, as a commit of its own, and returns its revision.
// Putting an equal object is a change like any other.
//
// Errors: ErrInvalidKey; ErrInvalidOption in Mirror mode; ErrRevisionOrder when
// revisions are used up; ErrCallbackPanic; ErrClosed. After an error nothing has
// changed.
func (c *Cache[T]) Put(key string, object T) (revision uint64, err error) {
	changes := [1]Change[T]{{Key: key, Object: object}}
	return c.write(batch[T]{}, changes[:], "Put")
}

// Delete removes a key, as a commit of its own, and returns its revision.
//
// Errors: ErrNotFound if there is no such key: then no revision is used; and
// those of Put.
func (c *Cache[T]) Delete(key string) (revision uint64, err error) {
	changes := [1]Change[T]{{Key: key, Delete: true}}
	return c.write(batch[T]{}, changes[:], "Delete")
}

// Apply commits several changes at one revision: watchers and readers see all of
// them or none. It returns the revision. Deleting a key that is not there makes
// no event; a commit without any change equals [Cache.Progress].
//
// Errors: ErrInvalidKey; ErrRevisionOrder ([RevisionError]) if the revision is
// not above the head's, is 0 in Mirror mode, or is to continue another revision;
// ErrNotReady in Mirror mode before the first Replace; ErrCallbackPanic;
// ErrClosed. After an error nothing has changed.
func (c *Cache[T]) Apply(commit Commit[T]) (revision uint64, err error) {
	b := batch[T]{revision: commit.Revision, time: commit.Time, continues: commit.Continues}
	return c.write(b, commit.Changes, "")
}

// write is Apply, and Put and Delete by their name. The changes, and what becomes
// of them, stand beside the batch and not in it: so the compiler sees that the one
// change of a Put needs no memory of its own.
func (c *Cache[T]) write(b batch[T], changes []Change[T], shortcut string) (uint64, error) {
	if shortcut != "" && c.opts.Mirror {
		return 0, &OptionError{"Options.Mirror", shortcut + " numbers its commit itself; use Apply"}
	}
	var one [1]op[T]
	ops := one[:0]
	if len(changes) > 1 {
		ops = make([]op[T], 0, len(changes))
	}
	for i := range changes {
		ch := &changes[i]
		if ch.Key == "" {
			return 0, &KeyError{ch.Key, fmt.Sprintf("change %d has an empty key", i)}
		}
		o := op[T]{key: ch.Key, object: ch.Object, remove: ch.Delete}
		if !ch.Delete {
			var err error
			if o.derived, err = c.derive(ch.Key, ch.Object); err != nil {
				return 0, err
			}
		}
		ops = append(ops, o)
	}

	c.turn.Lock()
	err := c.number(&b, len(ops))
	if err == nil && shortcut == "Delete" {
		if _, ok := c.state.get(ops[0].key); !ok {
			err = fmt.Errorf("%w: %q", ErrNotFound, changes[0].Key)
		}
	}
	if err == nil {
		err = c.commit(&b, ops)
	}
	c.endTurn()
	if err != nil {
		return 0, err
	}
	return b.revision, nil
}

// derive calls the hooks that look at one object.
func (c *Cache[T]) derive(key string, object T) (*derived, error) {
	if c.opts.Size == nil && len(c.indexNames) == 0 {
		return nil, nil
	}
	d := &derived{}
	if c.opts.Size != nil {
		if err := guard("Options.Size", func() { d.size = int64(c.opts.Size(key, object)) }); err != nil {
			return nil, err
		}
	}
	if len(c.indexNames) > 0 {
		d.indexes = make([][]string, len(c.indexNames))
	}
	for i, name := range c.indexNames {
		err := guard("Options.Indexes["+name+"]", func() {
			d.indexes[i] = slices.Clone(c.opts.Indexes[name](key, object))
		})
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// batch is a commit on its way.
type batch[T any] struct {
	revision  uint64
	part      uint32
	continues bool
	time      time.Time
	relist    *relist
	touched   []Item[T] // relist: items that differ in their revision only
}

// op is one change on its way.
type op[T any] struct {
	key      string
	object   T
	derived  *derived
	revision uint64 // the item's own; 0: the commit's
	remove   bool
	stamped  bool // a removal whose object is Publish's
}

// number checks the batch's revision, or gives it one. Writer's turn.
func (c *Cache[T]) number(b *batch[T], changes int) error {
	head := c.head
	switch {
	case !c.ready:
		return ErrNotReady
	case b.continues:
		if b.revision == 0 {
			b.revision = head.Revision
		}
		if b.revision != head.Revision || head.Part == math.MaxUint32 {
			return &RevisionError{b.revision, head.Revision}
		}
		b.part = head.Part + 1
	case changes == 0 && b.revision == head.Revision && b.revision != 0:
		b.part = head.Part // as Progress at the head
	case b.revision == 0 && !c.opts.Mirror:
		if b.revision = head.Revision + 1; b.revision == 0 {
			return &RevisionError{head.Revision, head.Revision} // used up
		}
	case b.revision <= head.Revision:
		return &RevisionError{b.revision, head.Revision}
	}
	return nil
}

// bigCommit is how many changes are made on a copy of the state, so that readers
// do not wait for them. A smaller commit is cheaper in place.
const bigCommit = 256

// commit makes a batch the newest commit. Writer's turn.
func (c *Cache[T]) commit(b *batch[T], ops []op[T]) error {
	if c.opts.Publish != nil {
		if err := c.publish(b, ops); err != nil {
			return err
		}
	}
	now := c.opts.Clock.Now()
	if b.time.IsZero() {
		b.time = now
	}
	big := len(ops) > bigCommit
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return ErrClosed
	}
	next := c.state
	if big {
		next = c.state.copy()
		c.mu.Unlock()
	}
	age := c.watchdog.Since(now)
	from := c.ring.tail
	for i := range ops {
		c.apply(next, b, &ops[i], age, from)
	}
	if big {
		c.mu.Lock()
		if c.draining {
			c.mu.Unlock()
			c.ring.abandon()
			return ErrClosed
		}
		c.state = next
	}
	if b.relist != nil {
		c.fillHole(b)
	}
	c.record(from)
	c.ring.publish()
	c.sourceTimes = c.sourceTimes || b.time != now
	c.advance(Position{Epoch: c.epoch, Revision: b.revision, Part: b.part}, age)
	c.trim(age)
	c.registry.Lagging(c.ring.tail, c.suspect)
	c.mu.Unlock()

	c.moved.Fire()
	if c.ring.tail > from {
		c.registry.Everything().Fire()
	}
	for _, group := range c.registry.Touched() {
		group.Fire()
	}
	c.registry.Done()
	return nil
}

// publish lets the hook replace what the events will carry. It changes nothing
// but the ops.
func (c *Cache[T]) publish(b *batch[T], ops []op[T]) error {
	type pending struct {
		object T
		exists bool
	}
	var earlier map[string]pending // by this batch
	if len(ops) > 1 {
		earlier = make(map[string]pending, len(ops))
	}
	for i := range ops {
		o := &ops[i]
		prev, ok := earlier[o.key]
		if !ok {
			e, exists := c.state.get(o.key)
			prev = pending{e.object, exists}
		}
		if o.remove && !prev.exists {
			continue
		}
		change := Change[T]{Key: o.key, Object: o.object, Delete: o.remove}
		if o.remove {
			change.Object = prev.object
		}
		err := guard("Options.Publish", func() { o.object = c.opts.Publish(b.revision, change, prev.object) })
		if err != nil {
			return err
		}
		o.stamped = o.remove
		if earlier != nil {
			now := pending{exists: !o.remove}
			if now.exists {
				now.object = o.object
			}
			earlier[o.key] = now
		}
	}
	return nil
}

// apply makes one change to the state and puts its event into the ring. first is
// where the commit's events begin there.
func (c *Cache[T]) apply(to state[T], b *batch[T], o *op[T], age time.Duration, first uint64) {
	var rec record[T]
	if o.remove {
		prev, ok := to.remove(o.key)
		if !ok {
			return
		}
		object, weight := prev.object, prev.derived.bytes()
		if o.stamped {
			object, weight = o.object, 2*weight
		}
		rec = record[T]{
			event:         Event[T]{Type: Deleted, Key: o.key, Object: object, Prev: prev.object, Cause: Removed},
			priorRevision: prev.revision,
			weight:        weight,
			derived:       derivedPair{prev.derived, nil},
		}
	} else {
		e := entry[T]{object: o.object, revision: o.revision, derived: o.derived}
		if e.revision == 0 {
			e.revision = b.revision
		}
		prev, ok := to.set(o.key, e)
		rec = record[T]{
			event:         Event[T]{Type: Added, Key: o.key, Object: o.object},
			priorRevision: b.revision,
			weight:        max(o.derived.bytes(), prev.derived.bytes()),
			derived:       derivedPair{prev.derived, o.derived},
		}
		if ok {
			rec.event.Type, rec.event.Prev, rec.priorRevision = Modified, prev.object, prev.revision
		}
	}
	rec.event.Revision, rec.event.Time, rec.part, rec.age = b.revision, b.time, b.part, age
	if c.ring.tail > first {
		c.ring.more()
	}
	c.ring.put(&rec)
}

// record tells the registry which groups the events from seq on concern.
func (c *Cache[T]) record(seq uint64) {
	if c.registry.Groups() == 0 {
		return
	}
	oldest := c.ring.oldest.Load()
	for ; seq < c.ring.tail; seq++ {
		chunk, i := c.ring.find(seq)
		var pair derivedPair
		if chunk.derived != nil {
			pair = chunk.derived[i]
		}
		c.registry.Record(seq, oldest, chunk.slots[i].Key, pair.before.all(), pair.after.all())
	}
}

// advance moves the head; the caller holds mu.
func (c *Cache[T]) advance(head Position, now time.Duration) {
	c.head = head
	c.snapshot.Store(nil)
	c.progressed = now
}

// Progress tells that there was no change up to revision: a source that is quiet
// here may have moved on elsewhere. At the head it is a no-op.
//
// Errors: ErrRevisionOrder ([RevisionError]) below the head; ErrNotReady in Mirror
// mode before the first Replace; ErrClosed.
func (c *Cache[T]) Progress(revision uint64) error {
	c.turn.Lock()
	defer c.endTurn()
	switch {
	case !c.ready:
		return ErrNotReady
	case revision < c.head.Revision:
		return &RevisionError{revision, c.head.Revision}
	}
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return ErrClosed
	}
	now := c.watchdog.Now()
	c.progressed = now
	if revision > c.head.Revision {
		c.advance(Position{Epoch: c.epoch, Revision: revision}, now)
	}
	c.mu.Unlock()
	c.moved.Fire()
	return nil
}

// Trim raises Oldest to a position, as a store does that compacts its log.
// Watchers that still need what is dropped are judged as overrun. Positions
// below Oldest are no-ops.
//
// Errors: ErrEpoch; ErrFuture ([FutureError]); ErrNotReady in Mirror mode before
// the first Replace; ErrClosed.
func (c *Cache[T]) Trim(before Position) error {
	c.turn.Lock()
	defer c.endTurn()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case !c.ready:
		return ErrNotReady
	case before.Epoch != c.epoch:
		return fmt.Errorf("%w: %v, not %q", ErrEpoch, before, c.epoch)
	case before.compare(c.head.Revision, c.head.Part) > 0:
		return &FutureError{Requested: before, Head: c.head}
	case before.compare(c.oldest.Revision, c.oldest.Part) <= 0:
		return nil
	}
	for _, hole := range c.relists { // nothing inside a hole can be resumed
		if before.compare(hole.after.Revision, hole.after.Part) > 0 && before.Revision < hole.upTo {
			before = Position{Epoch: c.epoch, Revision: hole.upTo}
		}
	}
	c.dropTo(c.ring.after(before), before, true)
	return nil
}

// trim keeps history within its limits at the time now; the caller, in its turn,
// holds mu.
func (c *Cache[T]) trim(now time.Duration) {
	if cut := c.ring.cut(now); cut > c.ring.oldest.Load() {
		chunk, i := c.ring.find(cut - 1)
		c.dropTo(cut, Position{Epoch: c.epoch, Revision: chunk.slots[i].Revision, Part: chunk.part(i)}, false)
	}
	if c.opts.Retention > 0 && !c.ageArmed && c.ring.len() > c.opts.Keep {
		c.ageArmed = true
		c.watchdog.Set(&c.ageTimer, c.ring.age(c.ring.oldest.Load())+c.opts.Retention)
	}
}

// dropTo lets history begin with the event seq, the first after oldest. Whoever
// needs an earlier one is marked before it is gone: a consumer that does not find
// its event knows from its own mark that a verdict is under way.
func (c *Cache[T]) dropTo(seq uint64, oldest Position, exact bool) {
	c.registry.Overrun(seq, c.overrun)
	c.ring.drop(seq, exact)
	c.oldest = oldest
	c.relists = slices.DeleteFunc(c.relists, func(hole relist) bool { return hole.upTo <= oldest.Revision })
	c.rewound.drop(oldest.Revision)
}

// ager is the watchdog's task that drops old events of an idle cache.
type ager[T any] struct{ c *Cache[T] }

func (a ager[T]) OnTime(now time.Duration) {
	c := a.c
	if !c.turn.TryLock() { // a writer is at work, and trims after it
		c.watchdog.Set(&c.ageTimer, now+c.opts.Retention/16+time.Millisecond)
		return
	}
	defer c.endTurn()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ageArmed = false
	c.trim(now)
	c.ring.drop(c.ring.oldest.Load(), true) // nobody may come by for long: leave nothing behind
}

// Replace makes a listing the state, at a position. An empty Epoch is the
// current one; in a cache that numbers its commits itself, a zero Revision is the
// next one.
//
// The first listing makes a Mirror ready. Later, at a higher revision, watchers
// get the difference as one commit, ordered by the items' revisions, deletions
// last, or end as expired: see Options.Relist. Positions strictly between the
// old and the new head are expired. At the same revision, no difference is a
// no-op, and a difference ends watchers as expired; so do a lower revision and
// another epoch, and then old positions are refused as well.
//
// Errors: an error of the listing itself, unchanged; ErrInvalidKey for an empty
// or repeated key; ErrCallbackPanic; ErrClosed. After an error nothing has
// changed.
func (c *Cache[T]) Replace(at Position, items iter.Seq2[Item[T], error]) error {
	listing, err := c.list(items)
	if err != nil {
		return err
	}
	c.turn.Lock()
	ended, err := c.replace(at, listing)
	c.endTurn()
	for _, w := range ended {
		w.announce()
	}
	return err
}

// list reads a listing whole.
func (c *Cache[T]) list(items iter.Seq2[Item[T], error]) (listing state[T], err error) {
	listing = newState[T](len(c.indexNames))
	panicked := guard("Replace's items", func() {
		for item, e := range items {
			if err = e; err == nil {
				err = c.listItem(listing, item)
			}
			if err != nil {
				return
			}
		}
	})
	if panicked != nil {
		err = panicked
	}
	return listing, err
}

func (c *Cache[T]) listItem(listing state[T], item Item[T]) error {
	if item.Key == "" {
		return &KeyError{item.Key, "an item has an empty key"}
	}
	d, err := c.derive(item.Key, item.Object)
	if err != nil {
		return err
	}
	if _, repeated := listing.set(item.Key, entry[T]{item.Object, item.Revision, d}); repeated {
		return &KeyError{item.Key, "listed more than once"}
	}
	return nil
}

// replace is Replace in the writer's turn. It returns the watchers that it ended.
func (c *Cache[T]) replace(at Position, listing state[T]) ([]*Watcher[T], error) {
	if at.Epoch == "" || at.Epoch == c.epoch {
		at.Epoch = c.sourceEpoch
	}
	if at.Revision == 0 && !c.opts.Mirror && at.Epoch == c.sourceEpoch {
		if at.Revision = c.head.Revision + 1; at.Revision == 0 {
			return nil, &RevisionError{c.head.Revision, c.head.Revision}
		}
	}
	anew := !c.ready || at.Epoch != c.sourceEpoch || at.Revision < c.head.Revision
	if anew {
		return c.renew(at, listing)
	}
	b := batch[T]{revision: at.Revision, part: at.Part}
	ops, err := c.difference(&b, listing)
	if err != nil {
		return nil, err
	}
	hole := at.Revision > c.head.Revision
	switch {
	case !hole && len(ops) == 0:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.draining {
			return nil, ErrClosed
		}
		c.progressed = c.watchdog.Now()
		return nil, nil
	case !hole || c.opts.Relist == RelistExpire:
		if !hole {
			at.Part = c.head.Part + 1 // what was resumable at this revision is not any more
		}
		return c.renew(at, listing)
	}
	b.relist = &relist{after: c.head, upTo: at.Revision, seq: c.ring.tail}
	c.log(slog.LevelInfo, "watchcache: relisted", "after", c.head, "at", at, "changes", len(ops))
	return nil, c.commit(&b, ops)
}

// difference returns what turns the state into the listing.
func (c *Cache[T]) difference(b *batch[T], listing state[T]) (ops []op[T], err error) {
	var removals []op[T]
	old, now := c.state.walk(ranges.Range{}), listing.walk(ranges.Range{})
	hasOld, hasNow := old.next(), now.next()
	for hasOld || hasNow {
		switch {
		case !hasNow || hasOld && old.key() < now.key():
			removals = append(removals, op[T]{key: old.key(), remove: true})
			hasOld = old.next()
		case !hasOld || now.key() < old.key():
			ops = append(ops, b.listed(now.key(), now.value()))
			hasNow = now.next()
		default:
			if ops, err = c.compare(b, ops, now.key(), old.value(), now.value()); err != nil {
				return nil, err
			}
			hasOld, hasNow = old.next(), now.next()
		}
	}
	slices.SortStableFunc(ops, func(x, y op[T]) int {
		switch {
		case x.revision < y.revision:
			return -1
		case x.revision > y.revision:
			return 1
		}
		return 0
	})
	return append(ops, removals...), nil
}

// compare adds to the ops what turns one entry into another.
func (c *Cache[T]) compare(b *batch[T], ops []op[T], key string, old, now entry[T]) ([]op[T], error) {
	var equal bool
	same := true
	if err := guard("Options.Equal", func() { equal = c.opts.Equal(old.object, now.object) }); err != nil {
		return nil, err
	}
	if equal {
		if now.revision != 0 && now.revision != old.revision {
			b.touched = append(b.touched, Item[T]{Key: key, Revision: now.revision})
		}
		return ops, nil
	}
	if c.opts.SameIdentity != nil {
		if err := guard("Options.SameIdentity", func() { same = c.opts.SameIdentity(old.object, now.object) }); err != nil {
			return nil, err
		}
	}
	put := b.listed(key, now)
	if !same { // ordered where the new one is: a stable sort keeps the two together
		ops = append(ops, op[T]{key: key, remove: true, revision: put.revision})
	}
	return append(ops, put), nil
}

// listed is the change to an item of a listing at the batch's revision.
func (b *batch[T]) listed(key string, e entry[T]) op[T] {
	if e.revision == 0 {
		e.revision = b.revision
	}
	return op[T]{key: key, object: e.object, derived: e.derived, revision: e.revision}
}

// fillHole notes a relist's hole, and gives untouched objects the revisions that
// the listing knows. The caller holds mu.
func (c *Cache[T]) fillHole(b *batch[T]) {
	for _, item := range b.touched {
		e, _ := c.state.get(item.Key)
		b.relist.touched = append(b.relist.touched, touched{item.Key, e.revision})
		e.revision = item.Revision
		c.state.tree.Set(item.Key, e)
	}
	c.relists = append(c.relists, *b.relist)
}

// renew makes a listing the state with no history before it, and ends whoever
// watched the old one. Writer's turn.
func (c *Cache[T]) renew(at Position, listing state[T]) ([]*Watcher[T], error) {
	if err := c.adopt(at, listing); err != nil {
		return nil, err
	}
	epoch := c.epoch
	switch {
	case at.Epoch != c.sourceEpoch:
		epoch = at.Epoch
	case c.ready && at.Revision < c.head.Revision:
		// A restored backup under its old name: revisions are given out a second
		// time, so that positions from before must not be taken for new ones.
		epoch = at.Epoch + "~" + newEpoch()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return nil, ErrClosed
	}
	if c.ready {
		c.log(slog.LevelWarn, "watchcache: started anew; watchers expire", "from", c.head, "to", at)
	}
	c.state, c.epoch, c.sourceEpoch, c.era = listing, epoch, at.Epoch, &epoch
	at.Epoch = epoch
	c.oldest, c.relists = at, nil
	c.advance(at, c.watchdog.Now())
	ended := c.endAll(func(w *Watcher[T]) error {
		position, _ := w.Position()
		return &ExpiredError{Requested: position, Oldest: at}
	})
	c.ring.clear() // after endAll: whoever finds nothing knows why
	c.rewound.drop(math.MaxUint64)
	if !c.ready {
		c.ready = true
		c.setStatusLocked(func(s *Status) { s.Ready = true })
	}
	c.moved.Fire()
	return ended, nil
}

// adopt makes a listing fit to be the state: revisions that the listing left out
// are its own, and Publish has its say.
func (c *Cache[T]) adopt(at Position, listing state[T]) (err error) {
	for w := listing.walk(ranges.Range{}); w.next(); {
		e := w.value()
		if e.revision != 0 && c.opts.Publish == nil {
			continue
		}
		if e.revision == 0 {
			e.revision = at.Revision
		}
		if c.opts.Publish != nil {
			prev, _ := c.state.get(w.key())
			change := Change[T]{Key: w.key(), Object: e.object}
			err := guard("Options.Publish", func() { e.object = c.opts.Publish(at.Revision, change, prev.object) })
			if err != nil {
				return err
			}
		}
		listing.tree.Set(w.key(), e) // replaces in place: the walk goes on
	}
	return nil
}

// endTurn ends the writer's turn, and then has judged what the turn found.
func (c *Cache[T]) endTurn() {
	suspects := c.suspects
	c.suspects = nil
	c.turn.Unlock()
	for _, s := range suspects {
		s.watcher.judge(s.overrun, 0)
	}
}

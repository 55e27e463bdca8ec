package watchcache

import (
	"fmt"
	"math"
	"slices"
	"time"
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
// Errors: ErrInvalidKey ([KeyError]); ErrRevisionOrder ([RevisionError]) if the
// revision is not above the head's, is 0 in Mirror mode, is to continue another
// revision or one before the first, or when revisions, or parts of one, are used up;
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
	defer c.endTurn() // also when a hook calls runtime.Goexit
	if err := c.number(&b, len(ops)); err != nil {
		return 0, err
	}
	if shortcut == "Delete" {
		if _, ok := c.state.get(ops[0].key); !ok {
			return 0, fmt.Errorf("%w: %q", ErrNotFound, changes[0].Key)
		}
	}
	if err := c.commit(&b, ops); err != nil {
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
		if err := guard("Options.Size", func() { d.size = min(max(0, int64(c.opts.Size(key, object))), mostSize) }); err != nil {
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

// mostSize is what an object counts at most: sums of it do not overflow.
const mostSize = 1 << 40

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
		if b.revision == 0 && !c.opts.Mirror {
			b.revision = head.Revision
		}
		if b.revision != head.Revision || head.Revision == c.first || head.Part == math.MaxUint32 {
			return &RevisionError{b.revision, head.Revision}
		}
		if b.part = head.Part; changes > 0 { // else as Progress at the head
			b.part++
		}
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
	now, age := c.watchdog.Time() // the writer's turn makes it one at a time
	if b.time.IsZero() {
		b.time = now
	} else {
		c.ring.columns.age = true // the time does not say when it was committed here
	}
	big := len(ops) > bigCommit
	c.mu.LockFirst()
	if c.draining {
		c.mu.Unlock()
		return ErrClosed
	}
	next := c.state
	if big {
		next = c.state.copy()
		c.mu.Unlock()
	} else {
		c.reclaim()
	}
	from := c.ring.tail
	for i := range ops {
		c.apply(next, b, &ops[i], age, from)
	}
	if big {
		c.mu.LockFirst()
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
	c.meet(b.revision, b.part, from)
	c.record(from)
	c.ring.publish()
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
	if c.snapshot.Load() != nil { // a load costs less than a store
		c.snapshot.Store(nil)
	}
	c.progressed = now
}

// Progress tells that there was no change up to revision: a source that is quiet
// here may have moved on elsewhere. At the head it moves nothing, but is a sign of
// life: of Stats.SinceProgress, and, from a source, for Run's waits.
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
	now := c.watchdog.Now()
	c.mu.LockFirst()
	if c.draining {
		c.mu.Unlock()
		return ErrClosed
	}
	c.progressed = now
	if revision > c.head.Revision {
		c.meet(revision, 0, c.ring.tail)
		c.advance(Position{Epoch: c.epoch, Revision: revision}, now)
	}
	c.mu.Unlock()
	c.moved.Fire()
	return nil
}

// endTurn ends the writer's turn, tells the watchers that it ended, and has judged
// those that it found wanting.
func (c *Cache[T]) endTurn() {
	suspects, gone := c.suspects, c.gone
	c.suspects, c.gone = nil, nil
	c.turn.Unlock()
	for _, w := range gone {
		w.announce()
	}
	judgeAll(suspects)
}

// judgeAll judges one after the other, the rest also when a policy calls
// runtime.Goexit.
func judgeAll[T any](suspects []suspect[T]) {
	for i, s := range suspects {
		if s.drained {
			s.watcher.end(s.watcher.draining.err)
			continue
		}
		judged := false
		func() {
			defer func() {
				if !judged {
					judgeAll(suspects[i+1:])
				}
			}()
			s.watcher.judge(s.overrun, 0)
			judged = true
		}()
	}
}

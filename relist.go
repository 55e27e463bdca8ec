package watchcache

import (
	"iter"
	"log/slog"
	"math"
	"slices"

	"github.com/watchcache/watchcache/internal/ranges"
)

// Replace makes a listing the state, at a position. An empty Epoch is the
// current one; in a cache that numbers its commits itself, a zero Revision is the
// next one of the current epoch, also if nothing differs.
//
// The first listing makes a Mirror ready. Later, at a higher revision, watchers
// get the difference as one commit, ordered by the items' revisions, deletions
// last, or end as expired: see Options.Relist. Positions strictly between the
// old and the new head are expired. At the head's revision, no difference is a
// no-op, but for the position, which becomes a later Part; a difference ends watchers
// as expired, and positions before the listing's are refused. A lower revision,
// another state at a position before or at the head, and another epoch begin a
// numbering: watchers end as expired, and all old positions are refused.
//
// Errors: an error of the listing itself, unchanged; ErrInvalidKey ([KeyError]) for
// an empty or repeated key; ErrRevisionOrder ([RevisionError]) when revisions are
// used up; ErrCallbackPanic ([PanicError]); ErrClosed. After an error nothing has
// changed.
func (c *Cache[T]) Replace(at Position, items iter.Seq2[Item[T], error]) error {
	listing, err := c.list(items)
	if err != nil {
		return err
	}
	was, now, err := c.replace(at, listing)
	switch {
	case err != nil || now == was:
	case was.IsZero():
		c.log(slog.LevelInfo, "watchcache: first state", "at", now)
	default:
		c.log(slog.LevelInfo, "watchcache: state replaced", "from", was, "to", now)
	}
	return err
}

// replace takes the writer's turn, and returns the head before and after it; the
// head of a cache with no state yet is the zero Position.
func (c *Cache[T]) replace(at Position, listing state[T]) (was, now Position, err error) {
	c.turn.Lock()
	defer c.endTurn() // also when a hook calls runtime.Goexit
	if c.ready {
		was = c.head
	}
	err = c.replaceInTurn(at, listing)
	return was, c.head, err
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
	if err == nil { // else a listing that went on after it was refused
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

// replaceInTurn is Replace in the writer's turn.
func (c *Cache[T]) replaceInTurn(at Position, listing state[T]) error {
	if at.Epoch == "" || at.Epoch == c.epoch {
		at.Epoch = c.sourceEpoch
	}
	if at.Revision == 0 && !c.opts.Mirror && at.Epoch == c.sourceEpoch {
		if at.Revision = c.head.Revision + 1; at.Revision == 0 {
			return &RevisionError{c.head.Revision, c.head.Revision}
		}
	}
	anew := !c.ready || at.Epoch != c.sourceEpoch || at.Revision < c.head.Revision
	if anew {
		return c.renew(at, listing)
	}
	b := batch[T]{revision: at.Revision, part: at.Part}
	ops, err := c.difference(&b, listing)
	if err != nil {
		return err
	}
	hole := c.head.compare(at.Revision, at.Part) < 0
	switch {
	case !hole && len(ops) == 0:
		now := c.watchdog.Now()
		c.mu.LockFirst()
		defer c.mu.Unlock()
		if c.draining {
			return ErrClosed
		}
		c.progressed = now
		return nil
	case !hole, c.opts.Relist == RelistExpire, at.Revision == c.head.Revision && len(ops) > 0:
		return c.renew(at, listing)
	}
	b.relist = &relist{after: c.head.mark(), upTo: at.mark(), seq: c.ring.tail}
	return c.commit(&b, ops)
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
	// A client that was ahead may know what happened in the hole; the difference
	// does not take it from there. One that was met was ahead by less.
	c.endInTurn(func(w *Watcher[T]) bool {
		return w.ahead != nil && b.relist.hides(w.ahead.at)
	})
}

// endInTurn ends watchers as expired; the caller, in its turn, holds mu, and they
// are told when the turn has ended.
func (c *Cache[T]) endInTurn(which func(*Watcher[T]) bool) {
	for _, w := range slices.Clone(c.watchers) {
		if which(w) && w.endLocked(w.expired()) {
			c.gone = append(c.gone, w)
		}
	}
}

// renew makes a listing the state with no history before it, and ends whoever
// watched the old one. Writer's turn.
func (c *Cache[T]) renew(at Position, listing state[T]) error {
	if err := c.adopt(at, listing); err != nil {
		return err
	}
	epoch := c.epoch
	switch {
	case at.Epoch != c.sourceEpoch && c.epochs[at.Epoch]:
		epoch = at.Epoch + "~" + newEpoch() // it was left before: the same
	case at.Epoch != c.sourceEpoch:
		epoch = at.Epoch
	case c.ready && c.head.compare(at.Revision, at.Part) >= 0:
		// A restored backup under its old name, or a source that shows another state
		// at the same position: positions are given out a second time, so that those
		// from before must not be taken for new ones.
		epoch = at.Epoch + "~" + newEpoch()
	}
	now := c.opts.Clock.Now()
	c.mu.LockFirst()
	defer c.mu.Unlock()
	if c.draining {
		return ErrClosed
	}
	if c.epochs == nil {
		c.epochs = make(map[string]bool)
	}
	if c.ready {
		c.epochs[c.sourceEpoch] = true
	}
	c.state, c.epoch, c.sourceEpoch, c.era = listing, epoch, at.Epoch, &epoch
	at.Epoch = epoch
	c.oldest, c.relists, c.leases = at, nil, leases{}
	c.advance(at, c.watchdog.Since(now))
	c.endInTurn(func(*Watcher[T]) bool { return true })
	c.ring.clear() // after endAll: whoever finds nothing knows why
	c.rewound.drop(Position{Revision: math.MaxUint64, Part: math.MaxUint32})
	if !c.ready {
		c.ready = true
		c.setStatusLocked(now, func(s *Status) { s.Ready = true })
	}
	c.moved.Fire()
	return nil
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

package handmade

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/watchcache/watchcache/bench/peer"
)

// Ring is a ring of the last events behind a read-write lock, with a condition
// variable; each watcher copies a batch out of it, and is ended if the ring has
// gone past it.
var Ring = peer.Peer{
	Name: "cond-ring",
	What: "read-write lock, ring and condition variable; watchers copy batches",
	Open: func(cfg peer.Config) (peer.Store, error) { return newRing(cfg), nil },
}

const batch = 64

var errOverrun = errors.New("ring: the events that this watcher needs are gone")

type event struct {
	key    string
	object *peer.Object // nil: deleted
}

type ring struct {
	mu     sync.RWMutex
	more   *sync.Cond // of mu's readers
	state  map[string]*peer.Object
	events []event
	head   uint64 // the number of events so far
	closed bool
}

type cursor struct {
	ring    *ring
	key     string
	initial []*peer.Object
	next    uint64
	stopped bool // guarded by the ring's mu
	batch   [batch]event
}

func newRing(cfg peer.Config) *ring {
	r := &ring{state: map[string]*peer.Object{}, events: make([]event, cmp.Or(cfg.History, 16384))}
	r.more = sync.NewCond(r.mu.RLocker())
	for _, o := range cfg.Initial {
		r.state[o.Key] = o
	}
	return r
}

func (r *ring) Put(o *peer.Object) error { r.write(event{o.Key, o}); return nil }
func (r *ring) Delete(key string) error  { r.write(event{key, nil}); return nil }

func (r *ring) write(ev event) {
	r.mu.Lock()
	if ev.object == nil {
		delete(r.state, ev.key)
	} else {
		r.state[ev.key] = ev.object
	}
	r.events[r.head%uint64(len(r.events))] = ev
	r.head++
	r.mu.Unlock()
	r.more.Broadcast()
}

func (r *ring) Revision() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.head
}

func (r *ring) Watch(from peer.Start) (peer.Watcher, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	w := &cursor{ring: r, key: from.Key, next: r.head}
	switch {
	case from.After > 0:
		w.next = from.After
	case from.State:
		w.initial = slices.Collect(maps.Values(r.state))
	}
	return w, nil
}

func (r *ring) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.more.Broadcast()
}

func (w *cursor) Stop() {
	w.ring.mu.Lock()
	w.stopped = true
	w.ring.mu.Unlock()
	w.ring.more.Broadcast()
}

func (w *cursor) Each(visit func(seq, sent int64) bool) error {
	if !visitAll(w.initial, visit) {
		return nil
	}
	w.initial = nil
	for {
		n, err := w.take()
		if err != nil {
			return err
		}
		for _, ev := range w.batch[:n] {
			if ev.object != nil && !visit(ev.object.Seq, ev.object.Sent) {
				return nil
			}
		}
	}
}

// take waits for events and copies some of them.
func (w *cursor) take() (n int, err error) {
	r := w.ring
	r.mu.RLock()
	defer r.mu.RUnlock()
	for n == 0 {
		for w.next == r.head && !w.stopped && !r.closed {
			r.more.Wait()
		}
		if w.stopped || r.closed {
			return 0, peer.ErrEnded
		}
		if r.head-w.next > uint64(len(r.events)) {
			return 0, errOverrun
		}
		for ; n < batch && w.next < r.head; w.next++ {
			ev := r.events[w.next%uint64(len(r.events))]
			if w.key == "" || w.key == ev.key {
				w.batch[n] = ev
				n++
			}
		}
	}
	return n, nil
}

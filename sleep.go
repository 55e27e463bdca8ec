package watchcache

import "github.com/watchcache/watchcache/internal/wakeup"

// sleep waits until it is worth to look again. It returns false if done was
// closed first.
func (w *Watcher[T]) sleep(done <-chan struct{}) bool {
	if w.rules.limits.StreamIdle > 0 {
		w.pace = pace{} // the next event is taken at a time that is known
	}
	if done == nil {
		w.sleepInRoom()
		return true
	}
	wake, own := w.group.Wake.Arm(), w.own.Arm()
	if w.ready() {
		return true
	}
	select {
	case <-wake:
	case <-own:
	case <-done:
		return false
	}
	return true
}

func (w *Watcher[T]) sleepInRoom() {
	room := w.room.Load()
	if room == nil {
		room = w.group.Rooms.Room()
		if !w.room.CompareAndSwap(nil, room) {
			room.GiveBack() // the watcher has ended
			return
		}
	}
	if room == noRoom {
		return
	}
	room.Enter()
	if w.ready() {
		room.Leave()
		return
	}
	room.Sleep()
}

// ready reports whether next may find something.
func (w *Watcher[T]) ready() bool {
	a := w.attention.Load()
	switch {
	case a&(ended|resync) != 0:
		return true
	case a&overrun != 0:
		return false
	case w.initial.Load() != nil, w.found.kind != unseen, w.coalesced != nil && w.coalesced.pending():
		return true
	}
	w.met()
	_, ok := w.candidate(w.scan, w.limit())
	return ok || a&(drain|bookmark) != 0
}

// noRoom is the room of a watcher that has ended.
var noRoom = new(wakeup.Room)

// wake has the consumer look again, whose attention the caller has set a flag in. If
// the room is not there yet, then the consumer looks after it has stored it, and sees
// the flag.
func (w *Watcher[T]) wake() {
	w.own.Fire()
	if room := w.room.Load(); room != nil && room != noRoom {
		room.Wake()
	}
}

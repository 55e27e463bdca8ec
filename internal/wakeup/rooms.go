package wakeup

import (
	"sync"
	"sync/atomic"
)

// Rooms is where goroutines sleep that wait for the same, in rooms of a few. It is
// for those that nothing else has to wake but [Rooms.Fire] and [Room.Wake]: they
// need no select, which costs as much as the sleep itself, and a room is one
// [sync.Cond] for all that sleep in it, which takes no memory for a sleep. The zero
// Rooms is ready.
//
// As with a [Signal], a sleeper makes itself known ([Room.Enter]), then looks
// whether there is something for it, and sleeps ([Room.Sleep]) only if not; whoever
// makes something available publishes it first and calls Fire then.
//
// Why no wake-up gets lost: listed, which the room's door guards, says that a visit
// of Fire's is yet to come, to a room that either stands in occupied or was taken
// out of it by a Fire that is on its way. Nobody looks before the room is listed,
// and the door is shut from then until the sleeper is one of the condition
// variable's: so the visit finds it there. If the visit is of a Fire that came too
// early to know of what is published now, then the sleeper looks again, after it has
// listed the room again; and if the room was put into occupied after Fire emptied
// it, then the look came after the publishing. Pushing, emptying, publishing and
// looking are sequentially consistent atomics.
//
// There are no more rooms than the beds that were ever taken at the same time need:
// one with a bed left is used again, also while it waits for a visit, and one that
// is empty and waits for none is forgotten.
type Rooms struct {
	occupied atomic.Pointer[Room] // a stack, by Room.next, of those that somebody entered since they were visited
	mu       sync.Mutex           // before a door
	free     *Room                // a list, by Room.before and after, of those with a bed left
}

// Room is one room of [Rooms].
type Room struct {
	rooms *Rooms
	door  door
	cond  sync.Cond    // of door
	beds  atomic.Int32 // that are taken; changed under Rooms.mu

	before, after *Room // guarded by Rooms.mu
	// Guarded by door; next, while the room stands in occupied, does not change, and
	// is read by the one Fire that took it out.
	listed bool
	next   *Room
}

// bedsInRoom is how many share a room: so many are woken when somebody wants one of
// them. With more the visits cost less, which is hard to measure from 4 on.
const bedsInRoom = 8

// door is a lock that the condition variable lets go of, but does not take again:
// who was woken has nothing to do in the room, and those woken with it would wait
// for each other.
type door struct{ mu sync.Mutex }

func (d *door) Lock()   {}
func (d *door) Unlock() { d.mu.Unlock() }

// Room returns a room with a bed for the caller, to be given back with
// [Room.GiveBack].
func (r *Rooms) Room() *Room {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.free
	if room == nil {
		room = &Room{rooms: r}
		room.cond.L = &room.door
		r.offer(room)
	}
	if room.beds.Add(1) == bedsInRoom {
		r.withdraw(room)
	}
	return room
}

// GiveBack gives the caller's bed back. Whoever had it may come in once more, as one
// does who does not know yet: it must find something when it looks.
func (room *Room) GiveBack() {
	r := room.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	if room.beds.Add(-1) == bedsInRoom-1 {
		r.offer(room)
	}
	r.forget(room)
}

// forget withdraws a room that is empty and waits for no visit. From when its last bed
// was given back, nobody lists it: see Enter.
func (r *Rooms) forget(room *Room) {
	if room.beds.Load() > 0 {
		return
	}
	room.door.mu.Lock()
	defer room.door.mu.Unlock()
	if !room.listed {
		r.withdraw(room)
	}
}

func (r *Rooms) offer(room *Room) {
	if room.after = r.free; room.after != nil {
		room.after.before = room
	}
	r.free = room
}

func (r *Rooms) withdraw(room *Room) {
	switch {
	case room.before != nil:
		room.before.after = room.after
	case r.free == room:
		r.free = room.after
	}
	if room.after != nil {
		room.after.before = room.before
	}
	room.before, room.after = nil, nil
}

// Enter shuts the room's door behind the caller, who looks then whether there is
// something for it, and calls [Room.Leave] if so, and Sleep if not.
func (room *Room) Enter() {
	room.door.mu.Lock()
	if room.listed || room.beds.Load() == 0 { // with 0 the caller has given its own back, and finds something
		return
	}
	room.listed = true
	for {
		room.next = room.rooms.occupied.Load()
		if room.rooms.occupied.CompareAndSwap(room.next, room) {
			return
		}
	}
}

// Leave opens the door again.
func (room *Room) Leave() { room.door.mu.Unlock() }

// Sleep opens the door and waits. It may return without reason.
func (room *Room) Sleep() { room.cond.Wait() }

// Wake wakes all that sleep in the room, for one of them that somebody wants. What
// it is wanted for must be visible already.
func (room *Room) Wake() {
	room.door.mu.Lock() // whoever has looked already sleeps now
	room.cond.Broadcast()
	room.door.mu.Unlock()
}

// Fire wakes all that sleep in any room. Rooms that nobody entered since the last
// Fire cost nothing.
func (r *Rooms) Fire() {
	if r.occupied.Load() == nil {
		return
	}
	for room := r.occupied.Swap(nil); room != nil; {
		room.door.mu.Lock()
		next := room.next
		room.next, room.listed = nil, false
		room.door.mu.Unlock()
		room.cond.Broadcast()
		if room.beds.Load() == 0 {
			r.mu.Lock()
			r.forget(room)
			r.mu.Unlock()
		}
		room = next
	}
}

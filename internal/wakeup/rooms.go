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
type Rooms struct {
	open     atomic.Pointer[Room] // the newest: it may have beds left
	occupied atomic.Pointer[Room] // a stack, by Room.next, of those that somebody entered since they were visited
}

// Room is one room of [Rooms].
type Room struct {
	rooms *Rooms
	door  door
	cond  sync.Cond // of door
	beds  atomic.Int32
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

// Room returns a room with a bed for the caller. Beds are not given back: a room is
// garbage when all that have a bed in it are.
func (r *Rooms) Room() *Room {
	for {
		room := r.open.Load()
		if room != nil && room.beds.Add(1) <= bedsInRoom {
			return room
		}
		fresh := &Room{rooms: r}
		fresh.cond.L = &fresh.door
		fresh.beds.Store(1)
		if r.open.CompareAndSwap(room, fresh) {
			return fresh
		}
	}
}

// Enter shuts the room's door behind the caller, who looks then whether there is
// something for it, and calls [Room.Leave] if so, and Sleep if not.
func (room *Room) Enter() {
	room.door.mu.Lock()
	if room.listed {
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
		room = next
	}
}

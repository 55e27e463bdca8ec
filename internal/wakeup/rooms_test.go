package wakeup

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestRoomsLoseNoWakeUp: sleepers of several rooms that look and sleep, against one
// that publishes and fires, and others that are woken for nothing.
func TestRoomsLoseNoWakeUp(t *testing.T) {
	var rooms Rooms
	var published atomic.Int64
	var sleepers, idlers sync.WaitGroup
	const n = 20_000
	first := rooms.Room()
	for range 2*bedsInRoom + 1 {
		room := rooms.Room()
		sleepers.Go(func() {
			for seen := int64(0); seen < n; seen = published.Load() {
				if room.Enter(); published.Load() != seen {
					room.Leave()
					continue
				}
				room.Sleep() // hangs, and the test with it, if a wake-up is lost
			}
		})
	}
	idlers.Go(func() {
		for published.Load() < n {
			first.Wake()
		}
	})
	for range 2 { // others come, look, and go
		idlers.Go(func() {
			for published.Load() < n {
				room := rooms.Room()
				room.Enter()
				room.Leave()
				room.GiveBack()
			}
		})
	}
	for range n {
		published.Add(1)
		rooms.Fire()
	}
	sleepers.Wait()
	idlers.Wait()
}

// TestWhoSleepsInARoom: Fire wakes all rooms, Wake one of them, and a sleeper is
// durably blocked.
func TestWhoSleepsInARoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rooms Rooms
		var woken [2]atomic.Int64 // of the first room, and of the others
		var over atomic.Bool
		first := rooms.Room()
		for i := range 2 * bedsInRoom {
			room, count := first, &woken[0]
			if i > 0 {
				room = rooms.Room()
			}
			if room != first {
				count = &woken[1]
			}
			go func() {
				for {
					if room.Enter(); over.Load() {
						room.Leave()
						return
					}
					room.Sleep()
					count.Add(1)
				}
			}()
		}
		expect := func(what string, inFirst, inOthers int64) {
			t.Helper()
			synctest.Wait()
			if woken[0].Load() != inFirst || woken[1].Load() != inOthers {
				t.Fatalf("%s: %d were woken in the first room and %d in the others, want %d and %d",
					what, woken[0].Load(), woken[1].Load(), inFirst, inOthers)
			}
		}
		expect("nothing", 0, 0)
		rooms.Fire()
		expect("Fire", bedsInRoom, bedsInRoom)
		first.Wake()
		expect("Wake", 2*bedsInRoom, bedsInRoom)
		rooms.Fire()
		expect("Fire after Wake", 3*bedsInRoom, 2*bedsInRoom)
		over.Store(true)
		rooms.Fire()
		expect("the last Fire", 4*bedsInRoom, 3*bedsInRoom)
		rooms.Fire()
		if rooms.occupied.Load() != nil || first.listed || first.next != nil {
			t.Error("a room that nobody enters is kept, or keeps another")
		}
	})
}

func listedRooms(r *Rooms) (n int) {
	for room := r.occupied.Load(); room != nil; room = room.next {
		n++
	}
	return n
}

func freeRooms(r *Rooms) (n int) {
	for room := r.free; room != nil; room = room.after {
		n++
	}
	return n
}

// TestRoomsAreUsedAgain: there are not more than are needed at a time, however many
// sleepers come and go without a Fire, and in the end there are none.
func TestRoomsAreUsedAgain(t *testing.T) {
	const guests = 3*bedsInRoom + 1
	var rooms Rooms
	for range 100 {
		var beds []*Room
		for range guests {
			room := rooms.Room()
			room.Enter()
			room.Leave()
			beds = append(beds, room)
		}
		for _, room := range beds {
			room.GiveBack()
			room.Enter() // who had not heard of its end yet
			room.Leave()
		}
	}
	if listed, free := listedRooms(&rooms), freeRooms(&rooms); listed != 4 || free != 4 {
		t.Errorf("%d rooms are to be visited, and %d have beds, want the 4 that %d need", listed, free, guests)
	}
	rooms.Fire()
	if listed, free := listedRooms(&rooms), freeRooms(&rooms); listed != 0 || free != 0 {
		t.Errorf("%d rooms are to be visited, and %d have beds, when nobody is there", listed, free)
	}
	room := rooms.Room()
	room.GiveBack()
	room.Enter() // and lists nothing that is forgotten
	room.Leave()
	if listed, free := listedRooms(&rooms), freeRooms(&rooms); listed != 0 || free != 0 {
		t.Errorf("%d rooms are to be visited, and %d have beds, after one that nobody slept in", listed, free)
	}
}

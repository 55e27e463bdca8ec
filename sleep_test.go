package watchcache

import (
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/watchcache/watchcache/internal/wakeup"
)

// TestWatchersThatComeAndGoLeaveNoRooms: between two events, while consumers sleep and
// their watchers are stopped, one after the other.
func TestWatchersThatComeAndGoLeaveNoRooms(t *testing.T) {
	var rooms []weak.Pointer[wakeup.Room]
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options[int]{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 100 {
			w, err := c.Watch(t.Context(), WatchOptions[int]{Start: FromNow()})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for range w.Events() {
				}
			}()
			synctest.Wait()
			rooms = append(rooms, weak.Make(w.room.Load()))
			w.Stop()
		}
		runtime.GC()
		kept := map[*wakeup.Room]bool{}
		for _, room := range rooms {
			if r := room.Value(); r != nil {
				kept[r] = true
			}
		}
		if len(kept) > 1 {
			t.Errorf("%d rooms are kept, want the one that each had in turn", len(kept))
		}
		c.Put("k", 1)
		clear(kept)
		runtime.GC()
		for i, room := range rooms {
			if room.Value() != nil {
				t.Errorf("the room of watcher %d is kept after the next event", i)
				break
			}
		}
	})
}

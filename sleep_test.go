package watchcache

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
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

// TestACommitWhileFallingAsleepWakes: each commit comes a moment after the last event was
// taken, so that some come between a consumer's last look and its sleep.
func TestACommitWhileFallingAsleepWakes(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	commits := 100_000
	if testing.Short() {
		commits = 10_000
	}
	for name, consume := range map[string]func(context.Context, *Watcher[int], chan<- int){
		"Next": func(ctx context.Context, w *Watcher[int], took chan<- int) {
			for ev, err := w.Next(ctx); err == nil; ev, err = w.Next(ctx) {
				took <- ev.Object
			}
		},
		"Events": func(_ context.Context, w *Watcher[int], took chan<- int) {
			for ev, err := range w.Events() {
				if err == nil {
					took <- ev.Object
				}
			}
		},
		"Wait": func(_ context.Context, w *Watcher[int], took chan<- int) {
			for {
				<-w.Wait()
				ev, ok, err := w.TryNext()
				if err != nil {
					return
				}
				if ok {
					took <- ev.Object
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Options[int]{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context()) // one that Next has to wait for, too
			defer cancel()
			w, err := c.Watch(t.Context(), WatchOptions[int]{Start: FromNow()})
			if err != nil {
				t.Fatal(err)
			}
			took := make(chan int, 1)
			go func() {
				defer close(took)
				consume(ctx, w, took)
			}()
			defer func() {
				w.Stop()
				for range took {
				}
			}()
			patience := time.NewTimer(0)
			for i := range commits {
				for spin := rand.N(300); spin > 0; spin-- {
					runtime.KeepAlive(spin)
				}
				if _, err := c.Put("k", i); err != nil {
					t.Fatal(err)
				}
				patience.Reset(10 * time.Second)
				select {
				case got := <-took:
					if got != i {
						t.Fatalf("took %d, want %d", got, i)
					}
				case <-patience.C:
					t.Fatalf("commit %d has not woken its consumer", i)
				}
			}
		})
	}
}

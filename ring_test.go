package watchcache

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// TestWindowShrinksWithHistory: after a burst that age has taken away, what
// history needs to find its chunks is small again.
func TestWindowShrinksWithHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options[int]{Capacity: 1 << 16, Retention: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range 1 << 16 {
			c.Put("a", i)
		}
		if n := len(c.ring.window.Load().at); n < 128 {
			t.Fatalf("a window of %d chunks for 65536 events", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(c.ring.window.Load().at); n > 8 {
			t.Errorf("a window of %d chunks for %d events", n, c.ring.len())
		}
	})
}

// TestReplacedWindowHoldsNothing: a consumer that hangs in its loop body knows a
// place in a window that was replaced since. What stood there is free.
func TestReplacedWindowHoldsNothing(t *testing.T) {
	c, err := New(Options[*[1024]byte]{Capacity: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Watch(context.Background(), WatchOptions[*[1024]byte]{Start: FromNow()})
	if err != nil {
		t.Fatal(err)
	}
	first := new([1024]byte)
	gone := weak.Make(first)
	c.Put("a", first)
	c.Put("a", new([1024]byte))
	first = nil
	hangs, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		n := 0
		for range w.Events() {
			if n++; n == 2 { // by now it is in the fast loop
				hangs <- struct{}{}
				<-hangs
				return
			}
		}
	}()
	<-hangs
	for range 1 << 14 { // the window grows several times, and history turns over
		c.Put("a", new([1024]byte))
	}
	runtime.GC()
	if gone.Value() != nil {
		t.Error("an object that history has dropped is still there")
	}
	close(hangs)
	<-over
}

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options[int]{})
		if err != nil {
			t.Fatal(err)
		}
		c.Put("a", 1)
		c.Put("b", 2)
		w, err := c.Watch(context.Background(), WatchOptions[int]{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			c.Put("c", 3)
			c.Apply(Commit[int]{Changes: []Change[int]{{Key: "a", Object: 9}, {Key: "b", Delete: true}}})
			time.Sleep(time.Second)
			c.Close()
		}()
		for ev, err := range w.Events() {
			p, ok := w.Position()
			fmt.Println(ev.Type, ev.Key, ev.Object, ev.Prev, ev.Revision, ev.More, err, p, ok)
		}
		fmt.Printf("%+v\n", c.Stats())
	})
}

func TestSmokeStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options[int]{Capacity: 100})
		for i := range 10 {
			c.Put(fmt.Sprint(i), i)
		}
		w, _ := c.Watch(context.Background(), WatchOptions[int]{})
		n := 0
		start := time.Now()
		go func() { <-w.Done(); fmt.Println("done after", time.Since(start)) }()
		for ev, err := range w.Events() {
			if err != nil {
				fmt.Println(err, errors.Is(err, ErrStalled))
				break
			}
			_ = ev
			n++
			if n == 7 {
				time.Sleep(time.Minute)
			} else {
				time.Sleep(20 * time.Second)
			}
		}
		w2, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow()})
		w3, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Key: "x"})
		w4, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow(), Stall: Resync{}})
		for i := range 101 {
			c.Put(fmt.Sprint(i), i)
		}
		fmt.Println(w2.Err(), w3.Err(), w4.Err())
		ev, err := w4.Next(context.Background())
		fmt.Println(ev.Type, err)
		w4.Stop()
		w3.Stop()
		c.Close()
	})
}

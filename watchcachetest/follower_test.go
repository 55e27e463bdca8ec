package watchcachetest_test

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

func TestFollowerRebuildsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The consumer hangs in its filter until it was overrun, so that it has to
		// start again on the same stream.
		hang := make(chan struct{})
		c := newCache(t, options{Capacity: 2})
		w, err := c.Watch(t.Context(), watchOptions{Stall: watchcache.Resync{}, Filter: func(string, int) bool { <-hang; return true }})
		if err != nil {
			t.Fatal(err)
		}
		f := watchcachetest.Follow(t, w)
		synctest.Wait()
		if !f.Synced() || len(f.State()) != 0 {
			t.Errorf("want Synced and an empty state, got %v", f.Events())
		}
		for i := range 2000 { // beyond what history keeps, in whole chunks
			if _, err := c.Put([]string{"a", "b", "c"}[i%3], i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // it hangs at the first
			}
		}
		if _, err := c.Delete("b"); err != nil {
			t.Fatal(err)
		}
		close(hang)
		synctest.Wait()
		want := make(map[string]item)
		for it := range c.Snapshot().All() {
			want[it.Key] = it
		}
		if got := f.State(); !reflect.DeepEqual(got, want) {
			t.Errorf("want the cache's state %v, got %v", want, got)
		}
		resets := 0
		for _, ev := range f.Events() {
			if ev.Type == watchcache.Reset {
				resets++
			}
		}
		if resets != 1 || !f.Synced() {
			t.Errorf("want one Reset, and Synced after it, got %d, %v", resets, f.Synced())
		}
		if err := f.Err(); err != nil {
			t.Errorf("want no error before the end, got %v", err)
		}
		f.Stop()
		f.Stop()
		if err := f.Err(); !errors.Is(err, watchcache.ErrStopped) {
			t.Errorf("want ErrStopped after Stop, got %v", err)
		}
	})
}

func TestFollowerEndsWithTheTest(t *testing.T) {
	c := newCache(t, options{})
	var f *watchcachetest.Follower[int]
	t.Run("that follows", func(t *testing.T) {
		w, err := c.Watch(t.Context(), watchOptions{Deadline: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		f = watchcachetest.Follow(t, w)
	})
	select {
	case <-f.Done():
	default:
		t.Error("want the follower to have ended with its test")
	}
	for left := range c.Watchers() {
		t.Errorf("want no watcher left, got %+v", left)
	}
}

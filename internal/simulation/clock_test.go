package simulation_test

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// jumpingClock is the bubble's clock behind a wall clock that is set now and then,
// as by an operator: what it measures is not changed by that.
type jumpingClock struct{ seconds atomic.Int64 }

func (c *jumpingClock) jump(seconds int) { c.seconds.Add(int64(seconds)) }

// Now implements watchcache.Clock.
func (c *jumpingClock) Now() time.Time { return setWall(time.Now(), c.seconds.Load()) }

// After implements watchcache.Clock.
func (c *jumpingClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// setWall returns a time whose monotonic reading is t, and whose wall reading is off
// by some seconds. There is no other way to such a time than the clock of a machine
// that is being set, and in a bubble there are no monotonic readings at all. The
// layout is that of package time: a flag, 33 bits of seconds since 1885 and 30 bits
// of nanoseconds; then the monotonic nanoseconds. TestClockJumps sees to it that it
// still is.
func setWall(t time.Time, seconds int64) time.Time {
	const from1885 = (1970-1885)*365 + 21 - 1 // days until 1970: 1900 had no 29 February
	wall := t.Unix() + seconds + from1885*24*60*60
	nanoseconds, mono := uint64(t.Nanosecond()), t.UnixNano()
	layout := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	layout.wall = 1<<63 | uint64(wall)<<30 | nanoseconds
	layout.ext = mono
	return t
}

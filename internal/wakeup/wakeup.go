// Package wakeup has the ways in which a goroutine learns that it should look again:
// a [Signal], which may fire many times, [Rooms], which do so for less where it waits
// for nothing else, and a [Latch], which fires once. Firing costs a load while nobody
// waits.
package wakeup

import "sync/atomic"

// closed is what a waiter gets when there is nothing left to wait for.
var closed = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// Closed returns a channel that is closed already.
func Closed() <-chan struct{} { return closed }

// Signal wakes all that wait at a moment. The zero Signal is ready.
//
// A waiter calls [Signal.Arm], then looks whether there is something for it,
// and sleeps on the channel only if not; whoever makes something available
// publishes it first and calls [Signal.Fire] then. All four steps are
// sequentially consistent atomics, so that either the waiter's look sees what
// was published, or Fire sees the waiter's channel: a wake-up cannot get lost.
type Signal struct {
	ch atomic.Pointer[chan struct{}]
}

// Arm returns the channel that the next Fire closes.
func (s *Signal) Arm() <-chan struct{} {
	for {
		if p := s.ch.Load(); p != nil {
			return *p
		}
		ch := make(chan struct{})
		if s.ch.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

// Armed reports whether a Fire would close a channel.
func (s *Signal) Armed() bool { return s.ch.Load() != nil }

// Fire closes the channel of those who wait, each of them once.
func (s *Signal) Fire() {
	if s.ch.Load() == nil {
		return
	}
	if p := s.ch.Swap(nil); p != nil {
		close(*p)
	}
}

// Latch is a channel that is made when somebody asks for it, and closed once.
// The zero Latch is open.
type Latch struct {
	ch atomic.Pointer[chan struct{}]
}

// Done returns the channel, which Close closes.
func (l *Latch) Done() <-chan struct{} {
	if p := l.ch.Load(); p != nil {
		return *p
	}
	ch := make(chan struct{})
	if l.ch.CompareAndSwap(nil, &ch) {
		return ch
	}
	return *l.ch.Load()
}

// Close closes the channel; again is a no-op.
func (l *Latch) Close() {
	p := l.ch.Swap(&closed)
	if p != nil && *p != closed {
		close(*p)
	}
}

// Closed reports whether Close was called.
func (l *Latch) Closed() bool {
	p := l.ch.Load()
	return p != nil && *p == closed
}

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// sample is what there is at one time.
type sample struct {
	at time.Duration
	waiting
	heap uint64
}

// outcome is what becomes of a client that reads its initial events to the end.
type outcome struct {
	events   int
	complete bool // the bookmark came that ends the initial events
}

// initialResult is one run of clients that stall in their initial events.
type initialResult struct {
	before  uint64 // the heap when there was no client
	samples []sample
	slow    outcome   // of the client that goes on reading, slowly
	stalled []outcome // of those that stalled, when they read again in the end
	after   uint64    // the heap when the clients have gone
	evicted uint64    // by the store's policy
}

// ended returns how many of the stalled clients' watches had been ended.
func (r *initialResult) ended() int {
	n := 0
	for _, o := range r.stalled {
		if !o.complete {
			n++
		}
	}
	return n
}

// stallInitial is the issue: clients open a watch of the whole state, read one event, and
// then nothing, while one more reads on, slowly. With writes, all objects are written once
// meanwhile.
func stallInitial(ctx context.Context, s size, a arrangement, http2, writes bool) (*initialResult, error) {
	sc, err := open(ctx, s, a, http2, evictInitial(s))
	if err != nil {
		return nil, err
	}
	defer sc.Close()
	clients, stop := context.WithCancel(ctx)
	defer stop()
	r := &initialResult{before: heap()}
	watches := make([]watch.Interface, s.clients)
	for i := range watches {
		if watches[i], err = sc.watchList(clients); err != nil {
			return nil, err
		}
		defer watches[i].Stop()
		if ev, open := <-watches[i].ResultChan(); !open || ev.Type != watch.Added {
			return nil, fmt.Errorf("a watch began with %q, open: %t", ev.Type, open)
		}
	}
	began := time.Now()
	slow := make(chan outcome, 1)
	w, err := sc.watchList(clients)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	go func() { slow <- readSlowly(w, s.limit) }()
	if writes {
		if err := sc.rewrite(ctx); err != nil {
			return nil, err
		}
	}
	tick := time.NewTicker(s.limit / 2)
	defer tick.Stop()
	for time.Since(began) < s.look {
		select {
		case <-tick.C:
			r.samples = append(r.samples, sample{time.Since(began), countWaiting(), heap()})
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case r.slow = <-slow:
	case <-time.After(patience):
		return nil, fmt.Errorf("the slow reader has not come to an end")
	}
	if sc.Store() != nil {
		r.evicted = sc.Store().CacheStats().Endings.Stalled
	}
	for _, w := range watches {
		o := readAll(w, patience, 0)
		o.events++ // the one that was read before
		r.stalled = append(r.stalled, o)
	}
	stop()
	for _, w := range watches {
		w.Stop()
	}
	r.after = heap()
	return r, nil
}

// readSlowly takes an event every tenth of the limit, for twice the limit, and then the
// rest at once.
func readSlowly(w watch.Interface, limit time.Duration) outcome {
	const paces = 20
	pace := limit / 10
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := range paces {
		<-tick.C
		if _, open := <-w.ResultChan(); !open {
			return outcome{events: n}
		}
	}
	return readAll(w, patience, paces)
}

// readAll reads initial events up to the bookmark, or to the end of the watch.
func readAll(w watch.Interface, within time.Duration, had int) outcome {
	late := time.NewTimer(within)
	defer late.Stop()
	o := outcome{events: had}
	for {
		select {
		case ev, open := <-w.ResultChan():
			switch {
			case !open, ev.Type == watch.Error:
				return o
			case endsInitial(ev):
				o.complete = true
				return o
			}
			o.events++
		case <-late.C:
			return o
		}
	}
}

func endsInitial(ev watch.Event) bool {
	if ev.Type != watch.Bookmark {
		return false
	}
	header, ok := ev.Object.(metav1.Object)
	return ok && header.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

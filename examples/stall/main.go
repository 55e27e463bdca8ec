// Command stall shows in small what happens when clients ask for everything and
// then stop reading: with the usual goroutine and channel for each watcher, and
// with this library.
//
// It is the fault of Kubernetes issue 131721. There a watch request's goroutine
// sends the initial state into a channel that nobody reads any more, for ever, and
// holds the snapshot of everything meanwhile.
//
// Both get the same: clients come one after another, and after each the whole
// state is replaced, as it is in time. So what a client still holds on to is a
// state that nobody else has.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/watchcache/watchcache"
)

const (
	clients = 50
	objects = 1000
	size    = 2000 // bytes an object
	limit   = time.Second
	later   = limit + limit/4
)

type object [size]byte

func main() {
	if err := show(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stall:", err)
		os.Exit(1)
	}
}

func show(out io.Writer) error {
	const megabyte = 1e6
	fmt.Fprintf(out, "The state is %d objects of %d bytes: %.1f MB. %d clients ask for it, one after another;\n", objects, size, objects*size/megabyte, clients)
	fmt.Fprintf(out, "each reads one object and stops reading. After each, every object is replaced.\n\n")
	fmt.Fprintf(out, "%-30s %12s %14s\n", "", "goroutines", "retained MB")
	print := func(what string, u usage) {
		fmt.Fprintf(out, "%-30s %12d %14.1f\n", what, u.goroutines, float64(u.bytes)/megabyte)
	}
	atOnce, afterwards := channels()
	print("channels, at once", atOnce)
	print(fmt.Sprintf("channels, %v later", later), afterwards)
	atOnce, afterwards, reason, err := library()
	if err != nil {
		return err
	}
	print("watchcache, at once", atOnce)
	print(fmt.Sprintf("watchcache, %v later", later), afterwards)

	fmt.Fprintf(out, "\nWith channels, nothing ever ends a goroutine that is blocked in a send, nor frees what it\n")
	fmt.Fprintf(out, "has left to send. Here a watcher is no goroutine: one watchdog serves all of them, and\n")
	fmt.Fprintf(out, "ends those that take nothing for %v. What they held is free, although their clients are\n", limit)
	fmt.Fprintf(out, "still there. Each learns why:\n  %v\n", reason)
	return nil
}

// usage is how much more of everything there is than before.
type usage struct {
	goroutines int
	bytes      int64
}

// meter measures from now on.
func meter() func() usage {
	look := func() usage {
		runtime.GC()
		runtime.GC() // what the first one found free, the second one has swept
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return usage{runtime.NumGoroutine(), int64(m.HeapAlloc)}
	}
	before := look()
	return func() usage {
		now := look()
		return usage{now.goroutines - before.goroutines, now.bytes - before.bytes}
	}
}

// channels is the usual way: a goroutine for each watcher sends it a copy of the
// state; the changes that would follow do not matter here.
func channels() (atOnce, afterwards usage) {
	measure := meter()
	state := map[string]*object{}
	fill := func() {
		for i := range objects {
			state[strconv.Itoa(i)] = new(object)
		}
	}
	fill()
	var senders sync.WaitGroup
	streams := make([]chan *object, clients)
	for i := range streams {
		stream := make(chan *object, 10)
		snapshot := make([]*object, 0, len(state)) // the objects are shared, not copied
		for _, o := range state {
			snapshot = append(snapshot, o)
		}
		senders.Go(func() {
			defer close(stream)
			for n, o := range snapshot {
				snapshot[n] = nil // to be fair: what was sent is not held
				stream <- o       // blocks for ever: nobody reads, and nobody says so
			}
		})
		<-stream // the client reads once, and sleeps
		streams[i] = stream
		fill()
	}
	atOnce = measure()
	time.Sleep(later)
	afterwards = measure()
	runtime.KeepAlive(state)

	for _, stream := range streams { // the end of this program's patience, not of theirs
		for range stream {
		}
	}
	senders.Wait()
	return atOnce, afterwards
}

// library is the same with this library. reason is why a watcher ended.
func library() (atOnce, afterwards usage, reason, err error) {
	measure := meter()
	cache, err := watchcache.New(watchcache.Options[*object]{
		Capacity: 1, // nobody streams here, and history would only cloud the picture
		Stall:    watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: limit}},
	})
	if err != nil {
		return atOnce, afterwards, nil, err
	}
	defer cache.Close()
	fill := func() error {
		for i := range objects {
			if _, err := cache.Put(strconv.Itoa(i), new(object)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill(); err != nil {
		return atOnce, afterwards, nil, err
	}
	watchers := make([]*watchcache.Watcher[*object], clients)
	for i := range watchers {
		w, err := cache.Watch(context.Background(), watchcache.WatchOptions[*object]{})
		if err != nil {
			return atOnce, afterwards, nil, err
		}
		if _, err := w.Next(context.Background()); err != nil { // the client reads once, and sleeps
			return atOnce, afterwards, nil, err
		}
		watchers[i] = w
		if err := fill(); err != nil {
			return atOnce, afterwards, nil, err
		}
	}
	atOnce = measure()
	time.Sleep(later)
	afterwards = measure()
	for _, w := range watchers { // the clients still have their watchers
		if reason = w.Err(); reason == nil {
			return atOnce, afterwards, nil, fmt.Errorf("a watcher was not ended within %v", later)
		}
	}
	return atOnce, afterwards, reason, nil
}

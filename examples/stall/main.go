// Command stall shows in small what happens when a client asks for everything and
// then stops reading: with the usual goroutine and channel for each watcher, and
// with this library.
//
// It is the fault of Kubernetes issue 131721. There a watch request's goroutine
// sends the initial state into a channel that nobody reads any more, for ever, and
// holds the snapshot of everything meanwhile.
package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/watchcache/watchcache"
)

const (
	clients = 50
	objects = 2000
	size    = 10_000 // bytes an object
	limit   = time.Second
)

type object [size]byte

func main() {
	fmt.Printf("%d objects of %d bytes; %d clients each ask for the initial state, read one object, and stop reading.\n", objects, size, clients)
	fmt.Println("Then every object is replaced, so that only who still holds on to the old state keeps it in memory.")
	fmt.Printf("\n%-34s %10s %14s\n", "", "goroutines", "retained MB")
	channels()
	library()
}

// measure prints how much more there is than before.
func measure(what string, before usage) {
	now := use()
	fmt.Printf("%-34s %10d %14.1f\n", what, now.goroutines-before.goroutines, (now.bytes-before.bytes)/1e6)
}

type usage struct {
	goroutines int
	bytes      float64
}

func use() usage {
	runtime.GC()
	runtime.GC() // what the first one found free, the second one has swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), float64(m.HeapAlloc)}
}

// channels is the usual way: a goroutine for each watcher sends it a copy of the
// state, and then what changes.
func channels() {
	before := use()
	var mu sync.Mutex
	state := map[int]*object{}
	fill := func() {
		mu.Lock()
		defer mu.Unlock()
		for i := range objects {
			state[i] = new(object)
		}
	}
	fill()
	for range clients {
		mu.Lock()
		snapshot := make([]*object, 0, len(state))
		for _, o := range state {
			snapshot = append(snapshot, o)
		}
		mu.Unlock()
		ch := make(chan *object, 10)
		go func() {
			for _, o := range snapshot {
				ch <- o // blocks for ever: nobody reads, and nobody says so
			}
		}()
		<-ch // the client reads once, and sleeps
	}
	fill()
	measure("channels, at once", before)
	time.Sleep(limit + limit/4)
	measure(fmt.Sprintf("channels, %v later", limit+limit/4), before)
	runtime.KeepAlive(&state)
}

func library() {
	before := use()
	cache, err := watchcache.New(watchcache.Options[*object]{
		Capacity: 1, // so that history keeps nothing that would cloud the picture
		Stall:    watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: limit}},
	})
	if err != nil {
		panic(err)
	}
	defer cache.Close()
	fill := func() {
		for i := range objects {
			cache.Put(fmt.Sprint(i), new(object))
		}
	}
	fill()
	watchers := make([]*watchcache.Watcher[*object], clients)
	for i := range watchers {
		if watchers[i], err = cache.Watch(context.Background(), watchcache.WatchOptions[*object]{}); err != nil {
			panic(err)
		}
		watchers[i].Next(context.Background()) // the client reads once, and sleeps
	}
	fill()
	measure("watchcache, at once", before)
	time.Sleep(limit + limit/4)
	measure(fmt.Sprintf("watchcache, %v later", limit+limit/4), before)
	fmt.Printf("\nEach watcher learned why: %v\n", watchers[0].Err())
	fmt.Printf("The state itself is %.0f MB. One goroutine is the cache's watchdog, and goes when nothing is timed.\n", float64(objects*size)/1e6)
	runtime.KeepAlive(watchers)
}

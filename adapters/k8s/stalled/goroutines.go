package main

import (
	"bytes"
	"runtime"
	"runtime/pprof"
)

// waiting is how many goroutines of servers wait for clients.
type waiting struct {
	// parked: those that deliver events to a watch whose client takes nothing. Of
	// apiserver's cache it is processInterval, in its initial events; of a store.Store
	// it is the sending end of a watch's channel.
	parked int
	// blocked: watch handlers in a write to the network.
	blocked int
}

// countWaiting counts by the names of the functions on the stacks of all goroutines.
func countWaiting() waiting {
	var w waiting
	for _, stack := range stacks() {
		if stack.has("cacher.(*cacheWatcher).processInterval") && !stack.has("cacher.(*cacheWatcher).process") ||
			stack.has("watchcache.send[...]") {
			w.parked++
		}
		if stack.has("handlers.(*WatchServer).HandleHTTP") &&
			(stack.has("internal/poll.(*FD).Write") || stack.has("http2.(*serverConn).writeDataFromHandler")) {
			w.blocked++
		}
	}
	return w
}

// stack is one goroutine's, as the profile prints it.
type stack []byte

func stacks() []stack {
	var text bytes.Buffer
	// With 2, for the whole stacks: runtime.GoroutineProfile ends after 32 functions.
	_ = pprof.Lookup("goroutine").WriteTo(&text, 2)
	var all []stack
	for part := range bytes.SplitSeq(text.Bytes(), []byte("\n\n")) {
		all = append(all, part)
	}
	return all
}

func (s stack) has(function string) bool { return bytes.Contains(s, []byte(function+"(")) }

// heap returns what is in use after a collection, in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what a pool has kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

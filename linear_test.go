package watchcache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/watchcache/watchcache"
)

// linearKeys are few, so that operations meet.
var linearKeys = [...]string{"a", "b", "c"}

// linearState is a whole cache: its revision, and each key's object with its own
// revision, 0 if it is not there.
type linearState struct {
	revision uint64
	items    [len(linearKeys)]struct {
		object   int
		revision uint64
	}
}

// linearCall is one call: of what is not zero. Its result is a linearState of
// which only what the call tells is set.
type linearCall struct {
	op     string
	key    int         // of get
	puts   map[int]int // of apply, by key; 0 deletes
	atMost uint64      // of wait
}

// linearModel is the sequential specification: each operation happens at one
// moment between its call and its return.
var linearModel = porcupine.Model{
	Init: func() any { return linearState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(linearState), input.(linearCall), output.(linearState)
		switch in.op {
		case "apply":
			s.revision++
			for key, object := range in.puts {
				s.items[key].object, s.items[key].revision = object, s.revision
				if object == 0 {
					s.items[key].revision = 0
				}
			}
			return out.revision == s.revision, s
		case "get":
			return out.items[in.key] == s.items[in.key], s
		case "wait":
			return s.revision >= in.atMost, s
		case "now":
			return out.revision == s.revision, s
		}
		return out == s, s // "snapshot", and "state": a watcher's initial phase
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

func (s *linearState) set(key string, object int, revision uint64) {
	for i, k := range linearKeys {
		if k == key {
			s.items[i].object, s.items[i].revision = object, revision
		}
	}
}

// linearHistory is what several goroutines did to a cache.
type linearHistory struct {
	c     *cache
	clock atomic.Int64
	waits atomic.Int32 // calls of WaitRevision under way
	mu    sync.Mutex
	all   []porcupine.Operation
}

// do notes one call, and when it began and was over. then, if it is not nil, tells
// the rest of the result afterwards.
func (h *linearHistory) do(client int, in linearCall, call func(out *linearState), then func(out *linearState)) {
	var out linearState
	begin := h.clock.Add(1)
	call(&out)
	end := h.clock.Add(1)
	if then != nil {
		then(&out)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: in, Call: begin, Output: out, Return: end})
}

// step does one random thing.
func (h *linearHistory) step(t *testing.T, client int, r *rand.Rand) {
	ctx, c := context.Background(), h.c
	switch r.IntN(7) {
	case 0, 1:
		in := linearCall{op: "apply", puts: map[int]int{}}
		var cm commit
		for range 1 + r.IntN(2) {
			key, object := r.IntN(len(linearKeys)), r.IntN(3)*int(h.clock.Add(1))
			in.puts[key] = object
			cm.Changes = append(cm.Changes, change{Key: linearKeys[key], Object: object, Delete: object == 0})
		}
		h.do(client, in, func(out *linearState) {
			revision, err := c.Apply(cm)
			if err != nil {
				t.Error(err)
			}
			out.revision = revision
		}, nil)
	case 2:
		key := r.IntN(len(linearKeys))
		h.do(client, linearCall{op: "get", key: key}, func(out *linearState) {
			if i, ok := c.Get(linearKeys[key]); ok {
				out.set(i.Key, i.Object, i.Revision)
			}
		}, nil)
	case 3:
		var s *watchcache.Snapshot[int]
		h.do(client, linearCall{op: "snapshot"}, func(*linearState) { s = c.Snapshot() }, func(out *linearState) {
			out.revision = s.Position().Revision
			for i := range s.All() {
				out.set(i.Key, i.Object, i.Revision)
			}
		})
	case 4:
		revision := c.Position().Revision + uint64(r.IntN(2))
		h.do(client, linearCall{op: "wait", atMost: revision}, func(*linearState) {
			h.waits.Add(1)
			defer h.waits.Add(-1)
			if err := c.WaitRevision(ctx, revision); err != nil {
				t.Error(err)
			}
		}, nil)
	case 5:
		var w *watcher
		h.do(client, linearCall{op: "now"}, func(*linearState) { w = mustWatch(t, c, watch{Start: watchcache.FromNow()}) }, func(out *linearState) {
			at, _ := w.Position()
			out.revision = at.Revision
			w.Stop()
		})
	case 6:
		var w *watcher
		h.do(client, linearCall{op: "state"}, func(*linearState) { w = mustWatch(t, c, watch{}) }, func(out *linearState) {
			for ev, err := range w.Events() {
				if err != nil {
					t.Error(err)
				}
				if ev.Type == watchcache.Synced {
					out.revision = ev.Revision
					return
				}
				out.set(ev.Key, ev.Object, ev.Revision)
			}
		})
	}
}

// TestOperationsAreLinearizable: what concurrent callers see of Apply, Get,
// Snapshot, WaitRevision and Watch is explained by some order in which each of
// them happened at one moment during its call.
func TestOperationsAreLinearizable(t *testing.T) {
	for seed := range uint64(30) {
		h := &linearHistory{c: newCache(t, options{})}
		var clients sync.WaitGroup
		var left atomic.Int32
		left.Store(5)
		for client := range 5 {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(client)))
				for range 40 {
					h.step(t, client, r)
				}
				left.Add(-1)
			})
		}
		for left.Load() > 0 {
			if h.waits.Load() == left.Load() { // nobody else writes any more
				h.do(5, linearCall{op: "apply"}, func(out *linearState) {
					out.revision, _ = h.c.Apply(commit{Changes: []change{{Key: "of nobody"}}})
				}, nil)
			}
			runtime.Gosched()
		}
		clients.Wait()
		if result := porcupine.CheckOperationsTimeout(linearModel, h.all, time.Minute); result != porcupine.Ok {
			t.Fatalf("seed %d: %d operations are not linearizable (%v)", seed, len(h.all), result)
		}
	}
}

package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// plan is one life of a cache, and of its clients and its source.
type plan struct {
	config config
	steps  []step
}

// config is what does not change in a life.
type config struct {
	variant   int // which optional interfaces the source has
	capacity  int
	retention int // seconds; 0: none
	maxBytes  int
	expire    bool // Relist: end the watchers, in place of the difference
	keys      int
	// parts: commits may continue a revision. Then there are no channels: their
	// events tell no part, so that of two parts with the same state the checker could
	// not know which was seen.
	parts bool
}

func (c config) bigCommits() bool { return c.keys == 40 }

// mostInCommit is how many events a commit can have. A limit of lag is above it: whether
// a consumer that one commit wakes takes its events first, or is judged first, is the
// scheduler's choice.
func (c config) mostInCommit() int {
	if c.bigCommits() {
		return 420
	}
	return max(5, 3*c.keys) // of a relist, the difference
}

// step is one thing that happens. What its numbers mean is up to its kind; each
// takes any, so that a plan is whole without any of its steps.
type step struct {
	kind    kind
	a, b, c int
}

type kind uint8

const (
	doCommit      kind = iota // b changes, drawn from seed a
	doContinue                // as doCommit, at the same revision
	doQuiet                   // the source's revision moves, and nothing changes
	doTake                    // client a takes up to b events
	doTakeAll                 // all clients take what there is
	doJoin                    // a new client of kind a, with selection b and policy c
	doVanish                  // client a leaves without a word
	doReturn                  // client a, if it is away, comes back after its position
	doStorm                   // all clients leave and come back at once, b times
	doSleep                   // b milliseconds pass, or seconds, or minutes
	doCut                     // the source's streams break
	doFailLists               // the next a listings fail
	doFailWatches             // the next a watches fail
	doFailListing             // the next listing fails after a items
	doRepeat                  // the next listing has a key twice
	doInject                  // the source sends what goes back
	doHold                    // the source hangs, or goes on
	doDelay                   // the source is slow by a milliseconds
	doCompact                 // the source forgets all but its last a revisions
	doRestore                 // the source is restored from a backup: another past
	doRenumber                // the source begins another epoch
	doRestart                 // the process with the cache restarts
	doTrim                    // the cache forgets all but its last a revisions
	doBookmarks               // all watchers are asked for a bookmark
	doLook                    // a snapshot now, and one of a revisions ago
	doJump                    // the wall clock jumps by a seconds
	kinds
)

var kindNames = [kinds]string{"commit", "continue", "quiet", "take", "takeAll", "join", "vanish", "return", "storm", "sleep", "cut",
	"failLists", "failWatches", "failListing", "repeat", "inject", "hold", "delay", "compact", "restore", "renumber", "restart",
	"trim", "bookmarks", "look", "jump"}

// faulty are the kinds that are faults of the source, the process or the clock.
func (k kind) faulty() bool {
	return k >= doCut && k <= doRestart || k == doJump || k == doStorm || k == doVanish
}

// weights are how often each kind comes.
var weights = [kinds]int{doCommit: 60, doContinue: 6, doQuiet: 4, doTake: 50, doTakeAll: 10, doJoin: 16, doVanish: 8, doReturn: 10, doStorm: 1,
	doSleep: 20, doCut: 4, doFailLists: 2, doFailWatches: 2, doFailListing: 2, doRepeat: 1, doInject: 2, doHold: 4, doDelay: 1, doCompact: 2,
	doRestore: 1, doRenumber: 1, doRestart: 1, doTrim: 2, doBookmarks: 3, doLook: 4, doJump: 2}

// newPlan draws a plan. The same seed draws the same.
func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 131721))
	p := plan{config: config{
		variant:  r.IntN(4),
		capacity: []int{1, 4, 16, 64, 300}[r.IntN(5)],
		expire:   r.IntN(4) == 0,
		keys:     []int{1, 8, 40}[r.IntN(3)],
		parts:    r.IntN(3) == 0,
	}}
	if r.IntN(3) == 0 {
		p.config.retention = 1 + r.IntN(120)
	}
	if r.IntN(4) == 0 {
		p.config.maxBytes = 1 + r.IntN(2000)
	}
	// A few clients or a crowd: what matters to one is seldom what matters to many.
	joins := []int{1, 3, 10, 200}[r.IntN(4)]
	for i := range joins {
		p.steps = append(p.steps, step{doJoin, r.IntN(1 << 20), r.IntN(1 << 20), r.IntN(1 << 20)})
		if joins < 100 && i%2 == 0 {
			p.steps = append(p.steps, step{doCommit, r.IntN(1 << 20), r.IntN(8), 0})
		}
	}
	total := 0
	for _, w := range weights {
		total += w
	}
	for range 20 + r.IntN(300) {
		n, k := r.IntN(total), kind(0)
		for ; n >= weights[k]; k++ {
			n -= weights[k]
		}
		p.steps = append(p.steps, step{k, r.IntN(1 << 20), r.IntN(1 << 20), r.IntN(1 << 20)})
	}
	return p
}

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", p.config)
	for i, s := range p.steps {
		fmt.Fprintf(&b, "%4d %-11s %d %d %d\n", i, kindNames[s.kind], s.a, s.b, s.c)
	}
	return b.String()
}

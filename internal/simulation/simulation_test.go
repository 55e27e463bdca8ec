package simulation_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watchcache/watchcache/internal/backoff"
)

var (
	seeds = flag.Int("seeds", 30, "how many lives TestSimulation lives, from seed 1 on")
	only  *uint64 // the one seed to simulate
	soak  = flag.Duration("soak", 0, "how long TestSoak lives lives from random seeds on; three lives at least")
)

func init() {
	flag.Func("seed", "the one seed that TestSimulation lives", func(text string) error {
		seed, err := strconv.ParseUint(text, 0, 64)
		only = &seed
		return err
	})
}

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// live lives a plan in a bubble.
func live(t *testing.T, p plan) (digest uint64, f figures, err error) {
	random := rand.New(rand.NewPCG(1, 1))
	backoff.Jitter = random.Int64N // one Run at a time draws from it
	synctest.Test(t, func(t *testing.T) { digest, f, err = run(p) })
	return digest, f, err
}

// simulate lives the plan of a seed; one that fails is shrunk, and reported.
func simulate(t *testing.T, seed uint64) figures {
	p := newPlan(seed)
	_, f, err := live(t, p)
	if err == nil {
		return f
	}
	small := shrink(p, 300, func(p plan) bool {
		_, _, err := live(t, p)
		return err != nil
	})
	_, _, now := live(t, small)
	t.Errorf("seed %d fails: %v\n\nshrunk to %d of %d steps, it fails: %v\n%v", seed, err, len(small.steps), len(p.steps), now, small)
	return f
}

func (f figures) String() string {
	return fmt.Sprintf("%d steps, %d of them faults; %d events taken, %d resumptions refused, %d restarts; at most %d clients, %d goroutines, %.1f MB of heap",
		f.steps, f.faults, f.events, f.refused, f.restarts, f.watchers, f.goroutines, float64(f.heap)/1e6)
}

func TestSimulation(t *testing.T) {
	var all figures
	if only != nil {
		all = simulate(t, *only)
	} else {
		for seed := range uint64(*seeds) {
			f := simulate(t, seed+1)
			all.add(f)
			if t.Failed() {
				break
			}
		}
	}
	t.Log(all)
}

// TestSoak simulates for as long as -soak says; without it, three lives.
func TestSoak(t *testing.T) {
	var all figures
	begin, said := time.Now(), time.Now()
	first := rand.Uint64()
	lives := uint64(0)
	for ; !t.Failed() && (time.Since(begin) < *soak || lives < 3); lives++ {
		f := simulate(t, first+lives)
		all.add(f)
		if time.Since(said) > time.Minute {
			said = time.Now()
			t.Logf("after %v, %d lives from seed %d on: %v", time.Since(begin).Round(time.Second), lives, first, all)
		}
	}
	t.Logf("%d lives in %v, from seed %d on: %v", lives, time.Since(begin).Round(time.Second), first, all)
}

// TestALifeIsTheSameAgain: a seed that fails can be looked at.
func TestALifeIsTheSameAgain(t *testing.T) {
	for seed := range uint64(20) {
		p := newPlan(seed + 1)
		if again := newPlan(seed + 1); again.String() != p.String() {
			t.Fatalf("seed %d draws two plans", seed+1)
		}
		first, f, err := live(t, p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed+1, err)
		}
		if second, g, err := live(t, p); err != nil || second != first || g.events != f.events {
			t.Errorf("seed %d: %d events the first time and %d the second, digests %x and %x, %v", seed+1, f.events, g.events, first, second, err)
		}
	}
}

// TestShrink: of a plan that fails for two of its steps, these are left.
func TestShrink(t *testing.T) {
	p := newPlan(3)
	fails := func(p plan) bool {
		slept := false
		for _, s := range p.steps {
			if s.kind == doSleep {
				slept = true
			}
			if slept && s.kind == doTake {
				return true
			}
		}
		return false
	}
	if !fails(p) {
		t.Fatalf("the plan is of no use here:\n%v", p)
	}
	small := shrink(p, 1000, fails)
	if len(small.steps) != 2 || !fails(small) {
		t.Errorf("shrunk to:\n%v", small)
	}
	if tried := shrink(p, 0, fails); len(tried.steps) != len(p.steps) {
		t.Error("it was shrunk without a try")
	}
}

// TestALifeNoticesWhatIsWrong: of a client that loses an event, the checker tells.
func TestALifeNoticesWhatIsWrong(t *testing.T) {
	p := plan{config: config{capacity: 64, keys: 8}, steps: []step{{kind: doJoin, a: 0, b: 6}, {kind: doCommit, a: 1, b: 3}, {kind: doTakeAll}, {kind: doCommit, a: 2, b: 3}}}
	if _, f, err := live(t, p); err != nil || f.events == 0 {
		t.Fatalf("%d events, %v", f.events, err)
	}
	lose = 3
	defer func() { lose = 0 }()
	restarted := plan{p.config, append(slices.Clone(p.steps), step{kind: doRestart})}
	for _, p := range []plan{p, restarted} {
		_, _, err := live(t, p)
		if err == nil || !strings.Contains(err.Error(), "client 0") {
			t.Errorf("an event was lost: %v", err)
		}
	}
}

func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(jumpingClock)
		before := c.Now()
		c.jump(-3600)
		time.Sleep(time.Second)
		after := c.Now()
		if d := after.Sub(before); d != time.Second { // by what is monotonic
			t.Errorf("%v have passed, want a second", d)
		}
		if d := after.Round(0).Sub(before.Round(0)); d != time.Second-time.Hour {
			t.Errorf("the wall clock went by %v, want an hour back", d)
		}
		if !before.Round(0).Equal(time.Now().Add(-time.Second)) {
			t.Errorf("the wall clock says %v, want %v", before.Round(0), time.Now())
		}
	})
}

// Package backoff says how long to wait before trying again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff waits a random time below a bound that doubles with each failure up to
// a limit: "full jitter" (Marc Brooker, Exponential Backoff And Jitter, AWS
// Architecture Blog, 2015), which spreads out clients that failed together. The
// zero value is not useful.
type Backoff struct {
	First, Most time.Duration // the bound after one failure, and the largest
	failures    int
}

// Jitter draws a number in [0, n), n > 0. It is a variable for simulations, which
// put a seeded one in its place before anything runs.
var Jitter = rand.Int64N

// Next counts a failure and returns how long to wait.
func (b *Backoff) Next() time.Duration {
	return time.Duration(Jitter(int64(b.bound()))) + 1
}

func (b *Backoff) bound() time.Duration {
	bound := b.Most
	if b.failures < 62 {
		if d := b.First << b.failures; d > 0 && d>>b.failures == b.First {
			bound = min(d, b.Most)
		}
	}
	b.failures++
	return bound
}

// Failures returns how many failures there were since the last Reset.
func (b *Backoff) Failures() int { return b.failures }

// Reset forgets the failures: there was progress.
func (b *Backoff) Reset() { b.failures = 0 }

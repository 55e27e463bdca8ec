package watchcachetest

import (
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// Conform runs one test of RunConformance with another testing.TB, and waits for
// what must come only for so long.
func Conform[T any](t testing.TB, name string, wait time.Duration, start func(testing.TB, watchcache.Options[T]) Subject[T]) {
	defer func(d time.Duration) { patience = d }(patience)
	patience = wait
	for _, c := range conformance[T]() {
		if c.name != name {
			continue
		}
		done := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(done)
			c.test(t, start)
		}()
		<-done
	}
}

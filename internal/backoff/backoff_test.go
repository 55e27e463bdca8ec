package backoff

import (
	"testing"
	"time"
)

func TestBoundDoublesUpToTheMost(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Most: 30 * time.Second}
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		if got := b.bound(); got != want*time.Millisecond {
			t.Fatalf("bound %v, want %v ms", got, want)
		}
	}
	for range 200 { // no overflow brings it down again
		if got := b.bound(); got != b.Most {
			t.Fatalf("bound %v after %d failures", got, b.Failures())
		}
	}
	b.Reset()
	for range 1000 {
		b.Reset()
		if got := b.Next(); got <= 0 || got > b.First || b.Failures() != 1 {
			t.Fatalf("waits %v after one failure, want up to %v", got, b.First)
		}
	}
}

func TestWaitsAreSpreadOut(t *testing.T) {
	b := Backoff{First: time.Hour, Most: time.Hour}
	low, high := 0, 0
	for range 1000 {
		if b.Next() < 30*time.Minute {
			low++
		} else {
			high++
		}
	}
	if low < 300 || high < 300 {
		t.Errorf("%d waits in the lower half and %d in the upper, want full jitter", low, high)
	}
}

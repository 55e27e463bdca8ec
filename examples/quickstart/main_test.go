package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	main()
	// Output:
	// 1 Added beta/search true
	// 1 Synced  false
	// 2 Modified beta/search false
	// 4 Deleted beta/search false
	// the end: watchcache: closed
}

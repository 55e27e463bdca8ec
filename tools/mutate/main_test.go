package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEachFaultStillApplies: who changes a line that a fault changes has to move
// the fault with it. Whether it builds as well, mutate -check tells.
func TestEachFaultStillApplies(t *testing.T) {
	mutations, err := parse(ofCore + ofAdapters)
	if err != nil || len(mutations) < 75+15 {
		t.Fatalf("%d faults, %v", len(mutations), err)
	}
	names := map[string]bool{}
	for _, m := range mutations {
		whole, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if broken, err := m.apply(string(whole)); err != nil || broken == string(whole) {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("%s: two faults of that name", m.name)
		}
		names[m.name] = true
	}
}

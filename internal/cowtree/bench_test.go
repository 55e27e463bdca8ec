package cowtree

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// BenchmarkSet replaces the values of keys in no order, each in a string of its own.
func BenchmarkSet(b *testing.B) {
	type entry struct { // as large as the cache's
		_        [2]*int
		revision uint64
	}
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			t := new(Tree[entry])
			order := rand.New(rand.NewPCG(1, 2)).Perm(n)
			keys := make([]string, n)
			for i, k := range order {
				keys[i] = fmt.Sprintf("pods/%07d", k)
			}
			for _, k := range keys {
				t.Set(strings.Clone(k), entry{})
			}
			i := 0
			for b.Loop() {
				t.Set(keys[i], entry{revision: uint64(i)})
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}

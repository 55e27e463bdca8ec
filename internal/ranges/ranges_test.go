package ranges

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSetFindsWhatANaiveListFinds(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		var set Set[int]
		list := map[Range]int{}
		key := func() string { return fmt.Sprintf("%02d", r.IntN(60)) }
		for step := range 500 {
			a, b := key(), key()
			rg := Range{From: min(a, b), To: max(a, b)}
			switch r.IntN(6) {
			case 0:
				rg.From = ""
			case 1:
				rg.To = ""
			}
			if _, ok := list[rg]; !ok && r.IntN(3) > 0 {
				set.Add(rg, step)
				list[rg] = step
			} else {
				set.Remove(rg)
				delete(list, rg)
			}
			probe := key()
			var got, want []int
			set.Visit(probe, func(v int) { got = append(got, v) })
			for rg, v := range list {
				if rg.Contains(probe) {
					want = append(want, v)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) || set.Empty() != (len(list) == 0) {
				t.Fatalf("%s is in %v, want %v", probe, got, want)
			}
		}
	}
}

func TestPrefixIsARange(t *testing.T) {
	for _, prefix := range []string{"", "a", "a/", "\xff", "a\xff\xff", "\xff\xff"} {
		rg := OfPrefix(prefix)
		for _, key := range []string{prefix, prefix + "\x00", prefix + "z", prefix + "\xff\xff"} {
			if !rg.Contains(key) {
				t.Errorf("%q is not in the range of prefix %q", key, prefix)
			}
		}
		for _, key := range []string{"", "b", "a0", "Z", "\xfe"} {
			if has := len(key) >= len(prefix) && key[:len(prefix)] == prefix; rg.Contains(key) != has {
				t.Errorf("%q in the range of prefix %q: %v", key, prefix, !has)
			}
		}
	}
}

package cowtree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"
)

// verify compares a tree with what it must hold, and checks its structure.
func verify(t *testing.T, tree *Tree[int], want map[string]int) {
	t.Helper()
	if tree.Len() != len(want) {
		t.Fatalf("Len is %d, want %d", tree.Len(), len(want))
	}
	keys := slices.Sorted(maps.Keys(want))
	c := tree.Cursor()
	ok := c.Seek("")
	for i, key := range keys {
		if !ok || c.Key() != key || c.Value() != want[key] {
			t.Fatalf("item %d of %d is not %q", i, len(keys), key)
		}
		if got := tree.Rank(key); got != i {
			t.Fatalf("Rank(%q) is %d, want %d", key, got, i)
		}
		ok = c.Next()
	}
	if ok {
		t.Fatalf("a further item %q", c.Key())
	}
	for i := len(keys) - 1; i >= 0; i-- { // from beyond the end
		if !c.Prev() || c.Key() != keys[i] {
			t.Fatalf("backward, item %d is not %q", i, keys[i])
		}
	}
	if c.Prev() {
		t.Fatal("an item before the first")
	}
	if tree.root != nil {
		check(t, tree.root, "", "", true)
	}
}

// check verifies the structure below a node, whose keys lie in [from, to).
func check[V any](t *testing.T, n *node[V], from, to string, root bool) (depth int) {
	t.Helper()
	size := len(n.items)
	keys := make([]string, n.keys())
	for i := range keys {
		keys[i] = n.key(i)
		if !strings.HasPrefix(keys[i], keys[0][:n.skip]) || n.marks[i] != markOf(keys[i], n.skip) {
			t.Fatalf("key %q: skip %d, mark %x", keys[i], n.skip, n.marks[i])
		}
	}
	if !slices.IsSorted(keys) || len(keys) > 0 && (keys[0] < from || to != "" && keys[len(keys)-1] >= to) {
		t.Fatalf("keys %q outside [%q, %q)", keys, from, to)
	}
	if n.kids != nil && (len(n.kids) < 2 || len(keys) != len(n.kids)-1) {
		t.Fatalf("%d children, %d borders", len(n.kids), len(keys))
	}
	if n.kids == nil && len(keys) == 0 && !root {
		t.Fatal("an empty leaf")
	}
	for i, kid := range n.kids {
		low, high := from, to
		if i > 0 {
			low = keys[i-1]
		}
		if i < len(keys) {
			high = keys[i]
		}
		d := check(t, kid, low, high, false) + 1
		if depth != 0 && d != depth {
			t.Fatalf("leaves at depths %d and %d", depth, d)
		}
		depth = d
		size += kid.size
	}
	if size != n.size {
		t.Fatalf("size is %d, counted %d", n.size, size)
	}
	return depth
}

// TestKeysThatAreHardToTellApart: keys that end where others go on with zeros, that
// begin with the same bytes for longer than a mark, and the empty one.
func TestKeysThatAreHardToTellApart(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		key := func() string {
			b := []byte(strings.Repeat("x", int(seed%4)*r.IntN(2)*5))
			for range r.IntN(14) {
				b = append(b, "\x00\x00\x00a\xff"[r.IntN(5)])
			}
			return string(b)
		}
		tree, want := new(Tree[int]), map[string]int{}
		for step := range 3000 {
			k := key()
			if r.IntN(3) == 0 {
				tree.Delete(k)
				delete(want, k)
			} else {
				tree.Set(k, step+1)
				want[k] = step + 1
			}
			k = key()
			if value, ok := tree.Get(k); value != want[k] || ok != (want[k] != 0) {
				t.Fatalf("seed %d: Get(%q) is %d, %v; want %d", seed, k, value, ok, want[k])
			}
		}
		verify(t, tree, want)
		for range 100 { // places of keys that are not there, too
			k, below := key(), 0
			for other := range want {
				if other < k {
					below++
				}
			}
			if got := tree.Rank(k); got != below {
				t.Fatalf("seed %d: Rank(%q) is %d, want %d", seed, k, got, below)
			}
		}
	}
}

func TestTreeIsAMapAndItsCopiesStay(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		tree, want := new(Tree[int]), map[string]int{}
		type frozen struct {
			tree *Tree[int]
			want map[string]int
		}
		var copies []frozen
		space := 1 << (2 + seed%13)
		for step := range 4000 {
			key := fmt.Sprint(r.IntN(space))
			if grow := step%1500 < 1000; grow == (r.IntN(4) > 0) {
				prev, replaced := tree.Set(key, step)
				if was, ok := want[key]; ok != replaced || was != prev {
					t.Fatalf("Set(%q) returned %d, %v; want %d, %v", key, prev, replaced, was, ok)
				}
				want[key] = step
			} else {
				prev, deleted := tree.Delete(key)
				if was, ok := want[key]; ok != deleted || was != prev {
					t.Fatalf("Delete(%q) returned %d, %v; want %d, %v", key, prev, deleted, was, ok)
				}
				delete(want, key)
			}
			if value, ok := tree.Get(key); ok != (want[key] == step && value == step) && ok {
				t.Fatalf("Get(%q) returned %d", key, value)
			}
			if step%500 == 0 {
				copies = append(copies, frozen{tree.Copy(), maps.Clone(want)})
			}
		}
		verify(t, tree, want)
		for _, c := range copies {
			verify(t, c.tree, c.want)
		}
	}
}

func TestOrderedKeysFillLeavesAndGapsStayBalanced(t *testing.T) {
	const n = 20000
	ascending, descending, gap := new(Tree[int]), new(Tree[int]), new(Tree[int])
	want := map[string]int{}
	for i := range n {
		ascending.Set(fmt.Sprintf("%06d", i), i)
		want[fmt.Sprintf("%06d", i)] = i
	}
	for i := n - 1; i >= 0; i-- {
		descending.Set(fmt.Sprintf("%06d", i), i)
	}
	for i := range most { // descending into the gap behind a full leaf
		gap.Set(fmt.Sprintf("a%06d", i), i)
	}
	gap.Set("c", 0)
	for i := n; i > 0; i-- {
		gap.Set(fmt.Sprintf("b%06d", i), i)
	}
	verify(t, ascending, want)
	verify(t, descending, want)
	for name, tree := range map[string]*Tree[int]{"ascending": ascending, "descending": descending, "gap": gap} {
		leaves := 0
		for c, ok := tree.Cursor(), true; ok; leaves++ {
			if leaves == 0 {
				c.Seek("")
			}
			ok = c.NextRun()
		}
		most := map[string]int{"ascending": n/most + 1, "descending": 2*n/most + 2, "gap": 2*n/most + 6}[name]
		if leaves > most {
			t.Errorf("%s: %d leaves, at most %d expected", name, leaves, most)
		}
	}
}

func TestSeekFindsTheFirstKeyNotBelow(t *testing.T) {
	tree := new(Tree[int])
	for i := range 1000 {
		tree.Set(fmt.Sprintf("%04d", 2*i), i)
	}
	for i := range 2001 {
		c := tree.Cursor()
		ok := c.Seek(fmt.Sprintf("%04d", i))
		want := (i + 1) / 2
		if ok != (want < 1000) || ok && c.Value() != want {
			t.Fatalf("Seek(%04d) is at %v, want %d", i, ok, want)
		}
	}
	if c := tree.Cursor(); c.Seek(strings.Repeat("9", 5)) || !c.Prev() || c.Value() != 999 {
		t.Error("Prev from beyond the end must be the last item")
	}
}

// A replaced or deleted value must not be kept alive by unused room in a node,
// in whatever order the keys came. The B-tree that was used here first kept one
// value for every key that came in ascending order.
func TestReplacedValuesAreFree(t *testing.T) {
	const n = 3000
	orders := map[string]func(i int) int{
		"ascending":  func(i int) int { return i },
		"descending": func(i int) int { return n - i },
		"scattered":  func(i int) int { return i * 7919 % n },
	}
	for name, order := range orders {
		tree := new(Tree[*[64]byte])
		old := make([]weak.Pointer[[64]byte], 0, 2*n)
		set := func(i int) {
			value := new([64]byte)
			old = append(old, weak.Make(value))
			tree.Set(fmt.Sprintf("%06d", order(i)), value)
		}
		for i := range n {
			set(i)
		}
		replaced := old
		old = nil
		for i := range n {
			set(i)
		}
		deleted := old[:0:0]
		for i := range n {
			if i%3 == 0 {
				tree.Delete(fmt.Sprintf("%06d", order(i)))
				deleted = append(deleted, old[i])
			}
		}
		runtime.GC()
		for what, pointers := range map[string][]weak.Pointer[[64]byte]{"replaced": replaced, "deleted": deleted} {
			held := 0
			for _, p := range pointers {
				if p.Value() != nil {
					held++
				}
			}
			if held > 0 {
				t.Errorf("%s: %d of %d %s values are still held", name, held, len(pointers), what)
			}
		}
		runtime.KeepAlive(tree)
	}
}

package store_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var table = flag.String("table", "", "write the results of the conformance tests to this file")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if *table != "" {
			if err := os.WriteFile(*table, []byte(results.String()), 0o666); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		os.Exit(code)
	}))
}

// results are those of the conformance tests, of all subjects.
var results = &resultTable{cases: map[string]map[string]string{}}

type resultTable struct {
	mu    sync.Mutex
	cases map[string]map[string]string // what came of a case, by subject
}

func (r *resultTable) add(of, name string, passed bool, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cases[name] == nil {
		r.cases[name] = map[string]string{}
	}
	outcome := "**fails**"
	if passed {
		outcome = "passes"
	}
	r.cases[name][of] = fmt.Sprintf("%s, %.1f s", outcome, took.Seconds())
}

func (r *resultTable) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "| case | %s | %s |\n| --- | --- | --- |\n", ours.name, theirs.name)
	for _, name := range slices.Sorted(maps.Keys(r.cases)) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, cmp.Or(r.cases[name][ours.name], "not run"), cmp.Or(r.cases[name][theirs.name], "not run"))
	}
	return b.String()
}

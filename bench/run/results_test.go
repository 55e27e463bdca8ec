package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const raw = `date: 2026-12-02
go: go1.26
goos: linux
BenchmarkSaturated/peer=watchcache/watchers=1-2    10  0 lost-events  20.0 cpu-ns/delivery  10.0 ns/delivery
BenchmarkSaturated/peer=watchcache/watchers=100-2  10  0 lost-events  4.0 cpu-ns/delivery  3.0 ns/delivery
BenchmarkSaturated/peer=statedb/watchers=100-2     10  0 lost-events  80 cpu-ns/delivery  50 ns/delivery
BenchmarkResume/peer=watchcache-2                  10  6.5 ns/event
PASS
goos: linux
BenchmarkSaturated/peer=watchcache/watchers=1-2    10  0 lost-events  30.0 cpu-ns/delivery  12.0 ns/delivery
BenchmarkSaturated/peer=watchcache/watchers=100-2  10  0 lost-events  6.0 cpu-ns/delivery  3.0 ns/delivery
BenchmarkSaturated/peer=statedb/watchers=100-2     10  0 lost-events  120 cpu-ns/delivery  50 ns/delivery
PASS
`

func expectRows(t *testing.T, text string, rows ...string) {
	t.Helper()
	for _, row := range rows {
		if !strings.Contains(text, row+"\n") {
			t.Errorf("no row %q in\n%s", row, text)
		}
	}
}

func TestParseTakesMediansOverRounds(t *testing.T) {
	found, err := parse(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(found.head, "; "); got != "date: 2026-12-02; go: go1.26; goos: linux" {
		t.Errorf("the head is %q", got)
	}
	v := view{bench: "Saturated", by: "watchers", unit: "cpu-ns/delivery", what: "CPU ns a delivery", title: "Saturated"}
	cells := v.cells(found)
	want := []cell{{peer: "watchcache", size: 1, v: 25}, {peer: "watchcache", size: 100, v: 5}, {peer: "statedb", size: 100, v: 100}}
	if len(cells) != len(want) {
		t.Fatalf("%v, want %v", cells, want)
	}
	for i := range want {
		if cells[i] != want[i] {
			t.Errorf("%v, want %v", cells[i], want[i])
		}
	}
	expectRows(t, table(v, cells, nil), "| peer | 1 watchers | 100 watchers |", "| watchcache | 25.0 | 5.00 |", "| statedb | – | 100 |", "| nats-kv | – | – |")
	if _, err := parse(strings.NewReader("PASS\n")); err == nil {
		t.Error("nothing was measured, and no error")
	}
}

func TestWhoDidNotDoTheJobHasNoFigure(t *testing.T) {
	const raw = `BenchmarkPaced/peer=watchcache/watchers=10-2    1  0 lost-events  20 of-events  0 ended-watchers  10 of-watchers  4.0 ns
BenchmarkPaced/peer=k8s-cacher/watchers=10-2    1  0 lost-events  20000 of-events  0 ended-watchers  1000 of-watchers  5.0 ns
BenchmarkPaced/peer=k8s-cacher/watchers=10-2    1  9 lost-events  20000 of-events  999 ended-watchers  1000 of-watchers  1.0 ns
BenchmarkPaced/peer=channels-drop/watchers=10-2 1  1234 lost-events  20000 of-events  0 ended-watchers  10 of-watchers  1.0 ns
BenchmarkPaced/peer=statedb/watchers=10-2       1  10 ended-watchers  10 of-watchers
`
	found, err := parse(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	v := view{bench: "Paced", by: "watchers", unit: "ns"}
	text := table(v, v.cells(found), nil)
	expectRows(t, text, "| watchcache | 4.00 |", "| k8s-cacher | ended 999 of 1,000 |", "| channels-drop | lost 1,234 of 20,000 |", "| statedb | ended 10 of 10 |")
}

func TestControlsHaveRows(t *testing.T) {
	const raw = `BenchmarkInitialWriter/peer=watchcache/of=itself/watchers=0-2    1  3.0 p99-µs
BenchmarkInitialWriter/peer=watchcache/of=itself/watchers=10-2   1  5.0 p99-µs
BenchmarkInitialWriter/peer=watchcache/of=another/watchers=10-2  1  4.0 p99-µs
`
	found, err := parse(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	v := view{bench: "InitialWriter", where: itself, by: "watchers", unit: "p99-µs"}
	text := table(v, v.cells(found), v.controls(found))
	expectRows(t, text, "| watchcache | 3.00 | 5.00 |", "| watchcache, control | – | 4.00 |")
}

func TestUpperFirstTakesRunes(t *testing.T) {
	for s, want := range map[string]string{
		"p99 in µs": "P99 in µs", "µs": "µs", "ns an event": "ns an event", "öre": "Öre", "": "",
	} {
		if got := upperFirst(s); got != want {
			t.Errorf("%q became %q, want %q", s, got, want)
		}
	}
	for _, v := range views {
		if !utf8.ValidString(upperFirst(v.what)) {
			t.Errorf("%q becomes %q", v.what, upperFirst(v.what))
		}
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	v := view{title: "a < b", what: "ns", by: "watchers"}
	for name, row := range map[string]struct {
		cells []cell
		lines int
	}{
		"two peers":          {[]cell{{peer: "watchcache", size: 1, v: 3}, {peer: "watchcache", size: 100, v: 5}, {peer: "statedb", size: 1, v: 10}, {peer: "statedb", size: 100, v: 2000}}, 2},
		"from none":          {[]cell{{peer: "watchcache", size: 0, v: 3}, {peer: "watchcache", size: 100, v: 5}}, 1},
		"all the same":       {[]cell{{peer: "watchcache", size: 1, v: 10}, {peer: "watchcache", size: 10, v: 10}}, 1},
		"one size":           {[]cell{{peer: "watchcache", size: 1, v: 3}, {peer: "statedb", size: 1, v: 5}}, 0},
		"nothing but zeroes": {[]cell{{peer: "watchcache", size: 1, v: 0}, {peer: "watchcache", size: 10, v: 0}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			drawing := draw(v, row.cells)
			if n := strings.Count(drawing, "<polyline"); n != row.lines {
				t.Errorf("%d lines, want %d", n, row.lines)
			}
			if strings.Contains(drawing, "NaN") || strings.Contains(drawing, "Inf") {
				t.Error("a place that is no number")
			}
			for d := xml.NewDecoder(strings.NewReader(drawing)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestPresentWritesTablesAndCharts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, rawName), []byte(raw), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := present(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Saturated fan-out\n", "![Saturated fan-out](saturated.svg)", "## Resume over 50,000 events", "one watcher that stalls blocks the writer"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q", want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "saturated.svg")); err != nil {
		t.Error(err)
	}
}

func TestTargetsAreHeldAgainstTheResults(t *testing.T) {
	const raw = `BenchmarkSaturated/peer=watchcache/watchers=1000-2   1  4.0 cpu-ns/delivery
BenchmarkSaturated/peer=channels-block/watchers=1000-2  1  80.0 cpu-ns/delivery
BenchmarkSaturated/peer=k8s-cacher/watchers=1000-2  1  300 cpu-ns/delivery
BenchmarkPaced/peer=watchcache/rate=1000/watchers=1000-2    1  400 cpu-ns/delivery
BenchmarkPaced/peer=cond-ring/rate=1000/watchers=1000-2     1  600 cpu-ns/delivery
BenchmarkPaced/peer=statedb/rate=1000/watchers=1000-2       1  900 cpu-ns/delivery
BenchmarkPaced/peer=channels-drop/rate=1000/watchers=1000-2 1  100 cpu-ns/delivery 5 lost-events
BenchmarkElsewhere/peer=watchcache/watchers=0-2     1  500 cpu-ns/event
BenchmarkElsewhere/peer=watchcache/watchers=10000-2 1  600 cpu-ns/event
`
	found, err := parse(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text := heldTo(found)
	expectRows(t, text,
		"| saturated, 1,000 watchers: channels, CPU | ≥ 20 × | 20.0 × | reached |",
		"| … Kubernetes' cacher | ≥ 100 × | 75.0 × | **missed**: "+floor+" |",
		"| paced, 1,000 events a second, 1,000 watchers: the best peer, CPU | ≥ 2 × | 1.50 × | **missed**: "+wakes+" |",
		"| … with them, to without | ≤ 1.2 × | 1.20 × | reached |",
	)
	if strings.Contains(text, "statedb") {
		t.Errorf("a target without a figure has a row:\n%s", text)
	}
}

func TestGrowthIsPerTenfold(t *testing.T) {
	const raw = `BenchmarkSaturated/peer=watchcache/watchers=10-2    1  8.0 cpu-ns/delivery
BenchmarkSaturated/peer=watchcache/watchers=1000-2  1  2.0 cpu-ns/delivery
BenchmarkSaturated/peer=statedb/watchers=10-2       1  2.0 cpu-ns/delivery
BenchmarkElsewhere/peer=statedb/watchers=0-2        1  3.0 cpu-ns/event
BenchmarkElsewhere/peer=statedb/watchers=100-2      1  3.0 cpu-ns/event
BenchmarkElsewhere/peer=statedb/watchers=10000-2    1  300 cpu-ns/event
`
	found, err := parse(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text := growth(found)
	expectRows(t, text,
		"| Saturated fan-out: CPU ns a delivery | 0.50 | – | – | – | – | – | – | – |",
		"| One event, with watchers of other keys: CPU ns an event | – | – | – | – | 10.0 | – | – | – |",
	)
}

// TestPublished: what is published is what was measured, with a figure for each target and
// a reason for each that is missed.
func TestPublished(t *testing.T) {
	const published = "../results"
	file, err := os.Open(filepath.Join(published, rawName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found, err := parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range targets() {
		over, ok := g.over.of(found)
		base, has := g.base.of(found)
		if !ok || !has || base == 0 {
			t.Errorf("%q has no figure: %v and %v", g.what, g.over, g.base)
			continue
		}
		if _, known := reasons[g.what]; !known {
			t.Errorf("%q may be missed, and nobody knows why", g.what)
		}
		if missed := g.most == (over/base > g.aim); missed && g.why == "" {
			t.Errorf("%q is missed, and it is not said why", g.what)
		}
	}
	again := t.TempDir()
	raw, err := os.ReadFile(filepath.Join(published, rawName))
	if err == nil {
		err = os.WriteFile(filepath.Join(again, rawName), raw, 0o666)
	}
	if err == nil {
		err = present(again)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := func(dir string) []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	if got, want := names(published), names(again); !slices.Equal(got, want) {
		t.Fatalf("%q are published, want %q", got, want)
	}
	for _, name := range names(again) {
		got, err := os.ReadFile(filepath.Join(published, name))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Join(again, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the results say (%v): go run ./run -draw", name, err)
		}
	}
}

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const raw = `date: 2026-12-02
go: go1.26
goos: linux
BenchmarkSaturated/peer=watchcache/watchers=1-2    10  1 lost-events  20.0 cpu-ns/delivery  10.0 ns/delivery
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
	want := []cell{{"watchcache", 1, 25}, {"watchcache", 100, 5}, {"statedb", 100, 100}}
	if len(cells) != len(want) {
		t.Fatalf("%v, want %v", cells, want)
	}
	for i := range want {
		if cells[i] != want[i] {
			t.Errorf("%v, want %v", cells[i], want[i])
		}
	}
	for _, row := range []string{"| peer | 1 watchers | 100 watchers |", "| watchcache | 25.0 | 5.00 |", "| statedb | – | 100 |", "| nats-kv | – | – |"} {
		if text := table(v, cells); !strings.Contains(text, row+"\n") {
			t.Errorf("no row %q in\n%s", row, text)
		}
	}
	if _, err := parse(strings.NewReader("PASS\n")); err == nil {
		t.Error("nothing was measured, and no error")
	}
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
		"two peers":          {[]cell{{"watchcache", 1, 3}, {"watchcache", 100, 5}, {"statedb", 1, 10}, {"statedb", 100, 2000}}, 2},
		"from none":          {[]cell{{"watchcache", 0, 3}, {"watchcache", 100, 5}}, 1},
		"all the same":       {[]cell{{"watchcache", 1, 10}, {"watchcache", 10, 10}}, 1},
		"one size":           {[]cell{{"watchcache", 1, 3}, {"statedb", 1, 5}}, 0},
		"nothing but zeroes": {[]cell{{"watchcache", 1, 0}, {"watchcache", 10, 0}}, 0},
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

package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// results are what the benchmarks said.
type results struct {
	head  []string // "what: value"
	lines []line
}

// line is one benchmark at one setting, with the values of all rounds.
type line struct {
	name    string            // without Benchmark
	setting map[string]string // peer, watchers, …
	values  map[string][]float64
}

// parse reads the format that go test -bench writes.
func parse(r io.Reader) (*results, error) {
	var all results
	index := map[string]int{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		text := lines.Text()
		fields := strings.Fields(text)
		if what, _, ok := strings.Cut(text, ": "); ok && !strings.HasPrefix(text, "Benchmark") && !strings.Contains(what, " ") {
			if !slices.Contains(all.head, text) {
				all.head = append(all.head, text)
			}
			continue
		}
		if len(fields) < 4 || !strings.HasPrefix(text, "Benchmark") {
			continue
		}
		key := fields[0]
		if i := strings.LastIndex(key, "-"); i >= 0 {
			if _, err := strconv.Atoi(key[i+1:]); err == nil {
				key = key[:i] // GOMAXPROCS
			}
		}
		at, known := index[key]
		if !known {
			at = len(all.lines)
			index[key] = at
			all.lines = append(all.lines, newLine(key))
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
			unit := fields[i+1]
			all.lines[at].values[unit] = append(all.lines[at].values[unit], value)
		}
	}
	if len(all.lines) == 0 {
		return nil, fmt.Errorf("no benchmark in it")
	}
	return &all, nil
}

func newLine(key string) line {
	parts := strings.Split(strings.TrimPrefix(key, "Benchmark"), "/")
	l := line{name: parts[0], setting: map[string]string{}, values: map[string][]float64{}}
	for _, part := range parts[1:] {
		what, value, _ := strings.Cut(part, "=")
		l.setting[what] = value
	}
	return l
}

// median returns the median of a unit's values; false: there is none.
func (l line) median(unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(l.values[unit]))
	if len(values) == 0 {
		return 0, false
	}
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// view is one figure by size, for each peer: a table, and a chart.
type view struct {
	file, title string
	bench       string
	where       map[string]string // settings that are the same
	by          string            // the setting that differs
	unit        string
	what        string // the unit in words
}

// A writer's store is what the watchers start on; in the control they start on another.
var itself, another = map[string]string{"of": "itself"}, map[string]string{"of": "another"}

// beside is the case of a healthy watcher beside others that stall.
func beside(rate int, reconnect bool) map[string]string {
	return map[string]string{"rate": strconv.Itoa(rate), "reconnect": strconv.FormatBool(reconnect)}
}

var views = []view{
	{"saturated", "Saturated fan-out", "Saturated", nil, "watchers", "cpu-ns/delivery", "CPU ns a delivery"},
	{"saturated-wall", "Saturated fan-out, time", "Saturated", nil, "watchers", "ns/delivery", "ns a delivery"},
	{"saturated-allocs", "Saturated fan-out, allocations", "Saturated", nil, "watchers", "allocs/delivery", "allocations a delivery"},
	{"paced-1000", "Paced: 1,000 events a second", "Paced", map[string]string{"rate": "1000"}, "watchers", "cpu-ns/delivery", "CPU ns a delivery"},
	{"paced-1000-p99", "Paced: 1,000 events a second, latency", "Paced", map[string]string{"rate": "1000"}, "watchers", "p99-µs", "p99 in µs"},
	{"paced-10000", "Paced: 10,000 events a second", "Paced", map[string]string{"rate": "10000"}, "watchers", "cpu-ns/delivery", "CPU ns a delivery"},
	{"paced-10000-p99", "Paced: 10,000 events a second, latency", "Paced", map[string]string{"rate": "10000"}, "watchers", "p99-µs", "p99 in µs"},
	{"elsewhere", "One event, with watchers of other keys", "Elsewhere", nil, "watchers", "cpu-ns/event", "CPU ns an event"},
	{"slow-100-p99", "A healthy watcher beside stalled ones, 100 events a second: p99", "Slow", beside(100, false), "stalled", "p99-µs", "p99 in µs"},
	{"slow-100-max", "A healthy watcher beside stalled ones, 100 events a second: max", "Slow", beside(100, false), "stalled", "max-µs", "max in µs"},
	{"reconnect-100-p99", "A healthy watcher beside stalled ones that reconnect every 500 ms, 100 events a second: p99", "Slow", beside(100, true), "stalled", "p99-µs", "p99 in µs"},
	{"reconnect-100-max", "A healthy watcher beside stalled ones that reconnect every 500 ms, 100 events a second: max", "Slow", beside(100, true), "stalled", "max-µs", "max in µs"},
	{"slow-1000-p99", "A healthy watcher beside stalled ones, 1,000 events a second: p99", "Slow", beside(1000, false), "stalled", "p99-µs", "p99 in µs"},
	{"slow-1000-p99.9", "A healthy watcher beside stalled ones, 1,000 events a second: p99.9", "Slow", beside(1000, false), "stalled", "p99.9-µs", "p99.9 in µs"},
	{"slow-1000-max", "A healthy watcher beside stalled ones, 1,000 events a second: max", "Slow", beside(1000, false), "stalled", "max-µs", "max in µs"},
	{"reconnect-1000-p99", "A healthy watcher beside stalled ones that reconnect every 500 ms, 1,000 events a second: p99", "Slow", beside(1000, true), "stalled", "p99-µs", "p99 in µs"},
	{"reconnect-1000-p99.9", "A healthy watcher beside stalled ones that reconnect every 500 ms, 1,000 events a second: p99.9", "Slow", beside(1000, true), "stalled", "p99.9-µs", "p99.9 in µs"},
	{"reconnect-1000-max", "A healthy watcher beside stalled ones that reconnect every 500 ms, 1,000 events a second: max", "Slow", beside(1000, true), "stalled", "max-µs", "max in µs"},
	{"slow-1000-commit", "The slowest commit beside stalled watchers, 1,000 events a second", "Slow", beside(1000, false), "stalled", "slowest-commit-µs", "the slowest in µs"},
	{"initial", "Initial state", "Initial", nil, "objects", "ns/object", "ns an object"},
	{"initial-first", "Initial state: the first object", "Initial", nil, "objects", "first-µs", "µs"},
	{"initial-allocs", "Initial state: allocations", "Initial", nil, "objects", "allocs/object", "allocations an object"},
	{"held-up-p50", "A write while watchers start together: p50", "InitialWriter", itself, "watchers", "p50-µs", "p50 in µs"},
	{"held-up-p99", "A write while watchers start together: p99", "InitialWriter", itself, "watchers", "p99-µs", "p99 in µs"},
	{"held-up-max", "A write while watchers start together: max", "InitialWriter", itself, "watchers", "max-µs", "max in µs"},
	{"held-up-late", "How late a goroutine wakes meanwhile: max", "InitialWriter", itself, "watchers", "late-max-µs", "max in µs"},
	{"idle-watcher", "A watcher that waits", "Memory", map[string]string{"of": "watcher"}, "watchers", "B/watcher", "bytes"},
	{"event", "An event in history, with its object", "Memory", map[string]string{"of": "event"}, "", "B/event", "bytes"},
	{"resume", "Resume over 50,000 events", "Resume", nil, "", "ns/event", "ns an event"},
	{"replay", "A real history, 100 watchers", "Replay", nil, "watchers", "cpu-ns/delivery", "CPU ns a delivery"},
}

// cell is a view's value for a peer at a size.
type cell struct {
	peer    string
	size    int
	v       float64
	failing string // what the peer did not do of what v is about; "": it did
}

// cells returns what a view shows, in the order of the results.
func (v view) cells(all *results) []cell { return v.pick(all, v.where) }

// controls returns the cells of the control's rows, of what has one.
func (v view) controls(all *results) []cell {
	if !maps.Equal(v.where, itself) {
		return nil
	}
	return v.pick(all, another)
}

func (v view) pick(all *results, where map[string]string) []cell {
	var out []cell
	for _, l := range all.lines {
		if l.name != v.bench || !l.is(where) {
			continue
		}
		size := 0
		if v.by != "" {
			n, err := strconv.Atoi(l.setting[v.by])
			if err != nil {
				continue
			}
			size = n
		}
		value, ok := l.median(v.unit)
		if failing := l.failing(); ok || failing != "" {
			out = append(out, cell{l.setting["peer"], size, value, failing})
		}
	}
	return out
}

// failing says how many watchers the peer has ended, or how many events it has lost,
// in the worst round. A figure would be of less work than the others'.
func (l line) failing() string {
	for _, what := range []struct{ verb, n, of string }{
		{"ended", "ended-watchers", "of-watchers"},
		{"lost", "lost-events", "of-events"},
	} {
		if n := l.values[what.n]; len(n) > 0 && slices.Max(n) > 0 {
			worst := slices.Index(n, slices.Max(n))
			text := what.verb + " " + thousands(int(n[worst]))
			if of := l.values[what.of]; worst < len(of) {
				text += " of " + thousands(int(of[worst]))
			}
			return text
		}
	}
	return ""
}

func (l line) is(where map[string]string) bool {
	for what, value := range where {
		if l.setting[what] != value {
			return false
		}
	}
	return true
}

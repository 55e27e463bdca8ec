package watchcache_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// trace is a repository's history, with the truth at some revisions: see
// testdata/README.md.
type trace struct {
	commits     []watchcache.Commit[string]
	checkpoints map[uint64]string // digests
	files       map[uint64]int    // at the checkpoints
}

var readTrace = sync.OnceValue(func() trace {
	t := trace{checkpoints: map[uint64]string{}, files: map[uint64]int{}}
	file, err := os.Open("testdata/apiserver-history.tsv.gz")
	must(err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	must(err)
	lines := bufio.NewScanner(plain)
	for lines.Scan() {
		switch fields := strings.Split(lines.Text(), "\t"); fields[0] {
		case "P":
			last := &t.commits[len(t.commits)-1]
			last.Changes = append(last.Changes, watchcache.Change[string]{Key: fields[1], Object: fields[2]})
		case "D":
			last := &t.commits[len(t.commits)-1]
			last.Changes = append(last.Changes, watchcache.Change[string]{Key: fields[1], Delete: true})
		default:
			revision, err := strconv.ParseUint(fields[0], 10, 64)
			must(err)
			seconds, err := strconv.ParseInt(fields[1], 10, 64)
			must(err)
			t.commits = append(t.commits, watchcache.Commit[string]{Revision: revision, Time: time.Unix(seconds, 0)})
		}
	}
	must(lines.Err())
	text, err := os.ReadFile("testdata/apiserver-history.checkpoints.tsv")
	must(err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		revision, err := strconv.ParseUint(fields[0], 10, 64)
		must(err)
		t.files[revision], err = strconv.Atoi(fields[1])
		must(err)
		t.checkpoints[revision] = fields[2]
	}
	return t
})

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (t trace) last() uint64 { return uint64(len(t.commits)) }

func digest(state map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(state)) {
		io.WriteString(sum, key+"\t"+state[key]+"\n")
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func stateOf(s *watchcache.Snapshot[string]) map[string]string {
	state := map[string]string{}
	for item := range s.All() {
		state[item.Key] = item.Object
	}
	return state
}

// newMirror returns a mirror that has the empty state at revision 0.
func newMirror(t *testing.T, o watchcache.Options[string]) *watchcache.Cache[string] {
	t.Helper()
	o.Mirror = true
	c, err := watchcache.New(o)
	must(err)
	t.Cleanup(func() { c.Close() })
	must(c.Replace(watchcache.Position{}, func(func(watchcache.Item[string], error) bool) {}))
	return c
}

func TestTraceIsTrueInTheCacheAndRewound(t *testing.T) {
	tr := readTrace()
	if len(tr.checkpoints) != 15 || tr.last() != 5229 {
		t.Fatalf("%d checkpoints and %d revisions, want 15 and 5229", len(tr.checkpoints), tr.last())
	}
	c := newMirror(t, watchcache.Options[string]{Capacity: 1 << 15})
	for _, commit := range tr.commits {
		if _, err := c.Apply(commit); err != nil {
			t.Fatal(err)
		}
		if want := tr.checkpoints[commit.Revision]; want != "" {
			if n := c.Snapshot().Len(); n != tr.files[commit.Revision] {
				t.Errorf("%d objects at revision %d, want %d", n, commit.Revision, tr.files[commit.Revision])
			}
			if digest(stateOf(c.Snapshot())) != want {
				t.Errorf("the state at revision %d is not its checkpoint's", commit.Revision)
			}
		}
	}
	for revision, want := range tr.checkpoints {
		s, err := c.SnapshotAt(revision)
		if err != nil {
			t.Errorf("SnapshotAt(%d): %v", revision, err)
			continue
		}
		if digest(stateOf(s)) != want {
			t.Errorf("the state rewound to revision %d is not its checkpoint's", revision)
		}
		for item := range s.All() {
			if item.Revision > revision {
				t.Fatalf("rewound to %d, %q is of revision %d", revision, item.Key, item.Revision)
			}
		}
	}
	for after := range maps.Keys(tr.checkpoints) {
		checkIntervalSince(t, c, tr, after)
	}
	checkIntervalSince(t, c, tr, 0)
}

// checkIntervalSince holds history after a revision against the trace, event by
// event, and against the checkpoints that it passes.
func checkIntervalSince(t *testing.T, c *watchcache.Cache[string], tr trace, after uint64) {
	t.Helper()
	state := map[string]string{}
	if after > 0 {
		past, err := c.SnapshotAt(after)
		must(err)
		state = stateOf(past)
	}
	interval, err := c.Since(after)
	must(err)
	if from, upTo := interval.Bounds(); from.Revision != after || upTo != c.Position() {
		t.Errorf("the interval since %d has the bounds %v and %v", after, from, upTo)
	}
	events := 0
	for ev, err := range interval.All() {
		if err != nil {
			t.Fatalf("the interval since %d: %v", after, err)
		}
		applyEvent(state, ev)
		events++
		if want := tr.checkpoints[ev.Revision]; want != "" && !ev.More && digest(state) != want {
			t.Errorf("the interval since %d does not give the state at %d", after, ev.Revision)
		}
	}
	changes := 0
	for _, commit := range tr.commits[after:] {
		changes += len(commit.Changes)
	}
	if events != changes || events != interval.Len() {
		t.Errorf("the interval since %d has %d events and says %d, want %d", after, events, interval.Len(), changes)
	}
	if digest(state) != tr.checkpoints[tr.last()] {
		t.Errorf("the interval since %d does not give the last state", after)
	}
}

func applyEvent(state map[string]string, ev watchcache.Event[string]) {
	switch ev.Type {
	case watchcache.Added, watchcache.Modified:
		state[ev.Key] = ev.Object
	case watchcache.Deleted:
		delete(state, ev.Key)
	case watchcache.Reset:
		clear(state)
	}
}

// traceWatcher rebuilds the state from its events, and holds it against the
// checkpoints as it passes them.
type traceWatcher struct {
	state           map[string]string
	pending         []watchcache.Event[string] // of a commit that is not complete
	position        watchcache.Position
	checked         map[uint64]bool
	expired, resets int
}

func newTraceWatcher() *traceWatcher {
	return &traceWatcher{state: map[string]string{}, checked: map[uint64]bool{}}
}

func (w *traceWatcher) took(t *testing.T, name string, ev watchcache.Event[string], checkpoints map[uint64]string) {
	if w.pending = append(w.pending, ev); ev.More {
		return
	}
	for _, ev := range w.pending {
		if ev.Type == watchcache.Reset {
			w.resets++
		}
		applyEvent(w.state, ev)
	}
	w.pending = nil
	if want := checkpoints[ev.Revision]; want != "" && !ev.Initial && ev.Type != watchcache.Reset {
		w.checked[ev.Revision] = true
		if digest(w.state) != want {
			t.Errorf("%s: the state at revision %d is not its checkpoint's", name, ev.Revision)
		}
	}
}

// part is a watcher of a part of the objects, and what it has at each checkpoint.
type part struct {
	state map[string]string
	at    map[uint64]map[string]string
}

// reached notes the state at the checkpoints up to a revision.
func (p *part) reached(revision uint64, checkpoints map[uint64]string) {
	for at := range checkpoints {
		if _, noted := p.at[at]; !noted && at <= revision {
			p.at[at] = maps.Clone(p.state)
		}
	}
}

// TestTraceIsTrueInEveryWatcher replays the trace while watchers of every kind
// follow, once with a history that holds all, and once with one that is so small
// that resumes expire and resyncs happen.
func TestTraceIsTrueInEveryWatcher(t *testing.T) {
	for _, capacity := range []int{1 << 15, 300} {
		t.Run(fmt.Sprintf("capacity=%d", capacity), func(t *testing.T) { replayTrace(t, capacity) })
	}
}

func replayTrace(t *testing.T, capacity int) {
	tr := readTrace()
	c := newMirror(t, watchcache.Options[string]{Capacity: capacity, Stall: watchcache.Resync{}})
	var wg sync.WaitGroup
	watchers := map[string]*traceWatcher{}
	follow := func(name string, consume func(w *traceWatcher, took func(watchcache.Event[string]))) {
		w := newTraceWatcher()
		watchers[name] = w
		wg.Go(func() {
			consume(w, func(ev watchcache.Event[string]) { w.took(t, name, ev, tr.checkpoints) })
		})
	}
	watch := func(o watchcache.WatchOptions[string]) *watchcache.Watcher[string] {
		w, err := c.Watch(context.Background(), o)
		must(err)
		return w
	}
	events, batches, coalesced, channel := watch(watchcache.WatchOptions[string]{}), watch(watchcache.WatchOptions[string]{}),
		watch(watchcache.WatchOptions[string]{Coalesce: true}), watch(watchcache.WatchOptions[string]{})
	follow("events", func(_ *traceWatcher, took func(watchcache.Event[string])) {
		for ev, err := range events.Events() {
			if err == nil {
				took(ev)
			}
		}
	})
	follow("batches", func(_ *traceWatcher, took func(watchcache.Event[string])) {
		for batch := range batches.Batches() {
			for _, ev := range batch.Events {
				took(ev)
			}
		}
	})
	follow("coalesced", func(_ *traceWatcher, took func(watchcache.Event[string])) {
		for ev, err := range coalesced.Events() {
			if err == nil {
				took(ev)
			}
		}
	})
	follow("channel", func(_ *traceWatcher, took func(watchcache.Event[string])) {
		for ev := range channel.Channel(7) {
			took(ev)
		}
	})
	started, resumed := make(chan struct{}), make(chan struct{})
	follow("resuming", func(w *traceWatcher, took func(watchcache.Event[string])) {
		defer close(resumed)
		r := rand.New(rand.NewPCG(1, uint64(capacity)))
		for first := true; w.position.Revision < tr.last(); first = false {
			o := watchcache.WatchOptions[string]{Stall: watchcache.Evict{}}
			if !w.position.IsZero() {
				o.Start = watchcache.After(w.position)
			}
			watcher, err := c.Watch(context.Background(), o)
			if errors.Is(err, watchcache.ErrExpired) {
				w.expired++
				w.position = watchcache.Position{}
				continue
			}
			must(err)
			if first {
				close(started)
			}
			w.pending = nil // of a commit that comes again
			if o.Start == watchcache.FromState() {
				w.state = map[string]string{}
			}
			left := r.IntN(300)
			for ev, err := range watcher.Events() {
				if err != nil {
					break
				}
				took(ev)
				w.position, _ = watcher.Position()
				// A commit that is left half-way comes again whole, and a state before
				// Synced too: whoever never stays for a whole one never gets on.
				if left--; left < 0 && !ev.More && !w.position.IsZero() || w.position.Revision == tr.last() {
					break
				}
			}
			if r.IntN(10) == 0 { // away for long enough for a small history
				c.WaitRevision(context.Background(), min(tr.last(), w.position.Revision+400))
			}
		}
	})
	written := make(chan struct{})
	sleeper := watch(watchcache.WatchOptions[string]{})
	follow("sleeping", func(_ *traceWatcher, took func(watchcache.Event[string])) {
		<-written
		for ev, err := range sleeper.Events() {
			if err == nil {
				took(ev)
			}
		}
	})
	filtered := [2]*watchcache.Watcher[string]{}
	for half := range filtered {
		filtered[half] = watch(watchcache.WatchOptions[string]{Filter: func(_ string, hash string) bool { return int(hash[0])%2 == half }})
	}
	prefix := watch(watchcache.WatchOptions[string]{Prefix: "pkg/"})
	parts := make([]part, 3)
	for i, w := range [...]*watchcache.Watcher[string]{filtered[0], filtered[1], prefix} {
		p := &parts[i]
		p.state, p.at = map[string]string{}, map[uint64]map[string]string{}
		wg.Go(func() {
			for ev, err := range w.Events() {
				if err != nil {
					break
				}
				if !ev.Initial && ev.Revision > 0 {
					p.reached(ev.Revision-1, tr.checkpoints) // nothing below it is to come
				}
				applyEvent(p.state, ev)
			}
			p.reached(tr.last(), tr.checkpoints)
		})
	}

	<-started
	whole := map[uint64]map[string]string{} // the cache's states at the checkpoints
	rewound := 0
	for _, commit := range tr.commits {
		if _, err := c.Apply(commit); err != nil {
			t.Fatal(err)
		}
		if want := tr.checkpoints[commit.Revision]; want != "" {
			whole[commit.Revision] = stateOf(c.Snapshot())
		}
		if commit.Revision > 20 && rewinds(t, c, tr, commit.Revision-20) {
			rewound++
		}
	}
	close(written)
	for revision := range tr.checkpoints {
		if rewinds(t, c, tr, revision) {
			rewound++
		}
	}
	<-resumed
	must(c.Shutdown(context.Background()))
	wg.Wait()

	last := tr.checkpoints[tr.last()]
	for name, w := range watchers {
		if digest(w.state) != last {
			t.Errorf("%s: the last state is not the last checkpoint's", name)
		}
		if complete := capacity > 30000 && name != "coalesced"; complete && len(w.checked) != len(tr.checkpoints) {
			t.Errorf("%s: passed %d checkpoints, want all %d", name, len(w.checked), len(tr.checkpoints))
		}
	}
	for revision, want := range tr.checkpoints {
		if capacity < 1000 && revision < tr.last() {
			continue // a resync may have led past it
		}
		union := maps.Clone(parts[0].at[revision])
		maps.Copy(union, parts[1].at[revision])
		if len(union) != len(parts[0].at[revision])+len(parts[1].at[revision]) || digest(union) != want {
			t.Errorf("two filters that share out the objects do not add up to the whole at %d", revision)
		}
		below := whole[revision]
		maps.DeleteFunc(below, func(key, _ string) bool { return !strings.HasPrefix(key, "pkg/") })
		if digest(parts[2].at[revision]) != digest(below) {
			t.Errorf("the prefix watcher does not have the state below its prefix at %d", revision)
		}
	}
	resyncs, expired := 0, watchers["resuming"].expired
	for _, w := range watchers {
		resyncs += w.resets
	}
	switch {
	case capacity < 1000 && (resyncs == 0 || expired == 0 || watchers["sleeping"].resets != 1 || rewound < 5):
		t.Errorf("%d resyncs (%d of the sleeper), %d expired resumes, %d states rewound to: want some of each, and 1 of the sleeper's",
			resyncs, watchers["sleeping"].resets, expired, rewound)
	case capacity > 30000 && (resyncs != 0 || expired != 0 || rewound < len(tr.checkpoints)):
		t.Errorf("%d resyncs, %d expired resumes, %d states rewound to, with a history that holds all", resyncs, expired, rewound)
	}
}

// rewinds holds the state rewound to a revision, if it is a checkpoint, against
// it. It returns false if there is none or history does not reach it, which must
// then be said.
func rewinds(t *testing.T, c *watchcache.Cache[string], tr trace, revision uint64) bool {
	t.Helper()
	want := tr.checkpoints[revision]
	if want == "" {
		return false
	}
	s, err := c.SnapshotAt(revision)
	if revision < c.Oldest().Revision {
		if !errors.Is(err, watchcache.ErrExpired) {
			t.Errorf("SnapshotAt(%d), before oldest: %v, want ErrExpired", revision, err)
		}
		return false
	}
	if err != nil {
		t.Errorf("SnapshotAt(%d), from oldest on: %v", revision, err)
		return false
	}
	if digest(stateOf(s)) != want {
		t.Errorf("the state rewound to revision %d, of a head at %v, is not its checkpoint's", revision, c.Position())
	}
	return true
}

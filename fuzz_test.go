package watchcache

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// FuzzMachine is TestMachine with the fuzzer's choices in place of random ones.
func FuzzMachine(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { rapid.SyncTest(t, runMachine) }))
}

// FuzzRing is TestRingModel with the fuzzer's choices.
func FuzzRing(f *testing.F) { f.Fuzz(rapid.MakeFuzz(runRing)) }

// FuzzParsePosition checks that whatever parses is written as it was read.
func FuzzParsePosition(f *testing.F) {
	for _, text := range []string{"", ":", "e:1", "e:1.2", "e%3A:18446744073709551615.4294967295", "e:01", "e:1.0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePosition(text)
		if err == nil && p.String() != text {
			t.Errorf("ParsePosition(%q) = %#v, which is written %q: want the same text", text, p, p)
		}
	})
}

// What follows is what the machine draws.

const mostChanges = 5 // of a commit

var (
	keys       = []string{"a", "a/1", "a/2", "b", "b/1", "c", "\xff", "\xff\xff"}
	colors     = []string{"red", "blue", "green", ""}
	selections = []selection{
		{}, {}, {}, {loud: true}, {loud: true, prefix: "a"},
		{key: "a/1"}, {key: "a/1"}, {key: "never"}, {prefix: "a/"}, {prefix: "\xff"}, {from: "a/1", to: "b/1"}, {from: "b"}, {to: "a/2"},
		{index: IndexValue{"color", "red"}}, {index: IndexValue{"trait", "loud"}, prefix: "a"},
		{index: IndexValue{"trait", "blue"}, from: "a/1", to: "c", loud: true}, {index: IndexValue{"color", "blue"}, key: "b"},
	}
)

// chance draws true in one of n cases.
func chance(t *rapid.T, n int, label string) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

// seconds draws a duration. Each kind of them has milliseconds of its own, so
// that no two things are due at one moment, where their order would be chance.
func seconds(t *rapid.T, most int, ms time.Duration, label string) time.Duration {
	return time.Duration(rapid.IntRange(1, most).Draw(t, label))*time.Second + ms*time.Millisecond
}

func drawSettings(t *rapid.T) settings {
	s := settings{
		mirror:      rapid.Bool().Draw(t, "mirror"),
		capacity:    rapid.IntRange(1, 40).Draw(t, "capacity"),
		indexed:     rapid.Bool().Draw(t, "indexed"),
		expire:      chance(t, 4, "expire"),
		identity:    chance(t, 3, "identity"),
		relists:     rapid.Bool().Draw(t, "relists"),
		sourceTimes: chance(t, 4, "source times"),
	}
	s.keep = s.capacity
	if chance(t, 2, "with retention") {
		s.retention = seconds(t, 30, 7, "retention")
		s.keep = rapid.IntRange(1, min(s.capacity, 6)).Draw(t, "keep")
	}
	if chance(t, 4, "with bytes") {
		s.maxBytes = int64(rapid.IntRange(1, 80).Draw(t, "bytes"))
	}
	if chance(t, 4, "with most watchers") {
		s.maxWatchers = 3
	}
	s.defaultStall = drawStall(t, s, "none", "evict", "resync")
	return s
}

func (s settings) options(epoch string) Options[thing] {
	opts := Options[thing]{
		Mirror: s.mirror, Epoch: epoch, Capacity: s.capacity, Retention: s.retention, MaxBytes: s.maxBytes,
		Size:        func(_ string, x thing) int { return int(x.size()) },
		MaxWatchers: s.maxWatchers, Stall: s.defaultStall.policy,
	}
	if s.retention > 0 {
		opts.Keep = s.keep
	}
	if s.indexed {
		opts.Indexes = map[string]func(string, thing) []string{}
		for name, values := range indexes {
			opts.Indexes[name] = func(_ string, x thing) []string { return values(x) }
		}
	}
	if s.expire {
		opts.Relist = RelistExpire
	}
	if s.identity {
		opts.SameIdentity = func(a, b thing) bool { return a.Color == b.Color }
	}
	return opts
}

// drawStall draws a policy. A lag is more events than any commit has: of a consumer
// that is awake, nobody could say how much of a commit it has taken when the policy
// is asked. Relists make the largest ones.
func drawStall(t *rapid.T, s settings, kinds ...string) (r stallRule) {
	if chance(t, 3, "initial limit") {
		r.limits.InitialIdle = seconds(t, 20, 11, "initial idle")
	}
	if !s.sourceTimes && chance(t, 3, "stream limit") { // its time is exact with the clock's times only
		r.limits.StreamIdle = seconds(t, 20, 13, "stream idle")
	}
	if chance(t, 3, "lag limit") {
		most := mostChanges
		if s.relists {
			most = 2 * len(keys)
		}
		r.limits.Lag = rapid.IntRange(most+1, most+5).Draw(t, "lag")
	}
	switch rapid.SampledFrom(kinds).Draw(t, "policy") {
	case "none":
		r = stallRule{verdicts: []Verdict{VerdictEvict}}
	case "evict":
		r.policy, r.verdicts = Evict{r.limits}, []Verdict{VerdictEvict}
	case "resync":
		r.policy, r.verdicts = Resync{r.limits}, []Verdict{VerdictResync}
	case "func":
		verdicts := rapid.SliceOfN(rapid.SampledFrom([]Verdict{VerdictWait, VerdictEvict, VerdictResync}), 1, 3).Draw(t, "verdicts")
		heard := new(hearing)
		r.verdicts, r.heard = verdicts, heard
		r.policy = StallFunc(r.limits, func(s Stall) Verdict { return verdicts[heard.add(s)%len(verdicts)] })
		return r
	}
	if r.limits.InitialIdle == 0 {
		r.limits.InitialIdle = DefaultInitialIdle
	}
	return r
}

// drawChanges draws what a commit changes: keys may come twice, and deletions may
// have nothing to delete.
func (m *machine) drawChanges(t *rapid.T) (changes []Change[thing]) {
	for range rapid.IntRange(0, mostChanges).Draw(t, "changes") {
		ch := Change[thing]{Key: rapid.SampledFrom(keys).Draw(t, "key"), Delete: chance(t, 3, "delete")}
		if !ch.Delete {
			ch.Object = m.drawThing(t)
		}
		changes = append(changes, ch)
	}
	return changes
}

func (m *machine) drawThing(t *rapid.T) thing {
	m.serial++
	return thing{rapid.SampledFrom(colors).Draw(t, "color"), rapid.Bool().Draw(t, "loud"), m.serial}
}

// drawPosition draws a position to resume from: one that was seen, or one near
// history's borders.
func (m *machine) drawPosition(t *rapid.T) Position {
	if rapid.Bool().Draw(t, "seen") {
		return rapid.SampledFrom(m.positions).Draw(t, "position")
	}
	p := Position{Epoch: m.model.epoch, Revision: m.drawRevision(t)}
	if chance(t, 4, "part") {
		p.Part = 1
	}
	return p
}

// drawRevision draws a revision from a little before oldest to a little beyond
// the head.
func (m *machine) drawRevision(t *rapid.T) uint64 {
	from := m.model.oldest.Revision - min(2, m.model.oldest.Revision)
	return rapid.Uint64Range(from, m.model.head.Revision+3).Draw(t, "revision")
}

// drawWatch draws a watcher's options, and what the model says of them.
func (m *machine) drawWatch(t *rapid.T) (WatchOptions[thing], *modelWatcher) {
	now := time.Now()
	w := &modelWatcher{model: m.model, rule: m.model.defaultStall, coalesce: chance(t, 4, "coalesce")}
	w.selection = rapid.SampledFrom(selections).Draw(t, "selection")
	if !m.model.indexed {
		w.index = IndexValue{}
	}
	opts := w.options()
	if chance(t, 2, "own policy") {
		w.rule = drawStall(t, m.model.settings, "evict", "resync", "func")
		opts.Stall = w.rule.policy
	}
	m.names++
	w.name = fmt.Sprintf("w%d", m.names)
	opts.Name, opts.Coalesce = w.name, w.coalesce
	if chance(t, 3, "bookmarks") {
		w.every = seconds(t, 10, 17, "every")
		opts.Bookmarks, w.bookmarkAt = w.every, now.Add(w.every)
	}
	if chance(t, 5, "deadline") {
		w.deadlineAt = now.Add(seconds(t, 30, 19, "deadline"))
		opts.Deadline = w.deadlineAt
		if rapid.Bool().Draw(t, "with lead") {
			opts.DeadlineLead = seconds(t, 10, 4, "lead")
			if w.leadAt = w.deadlineAt.Add(-opts.DeadlineLead); w.leadAt.Before(now) {
				w.leadAt = now
			}
		}
	}
	opts.Start = m.drawStart(t, w)
	return opts, w
}

// drawStart draws where a watcher begins, and puts the model there.
func (m *machine) drawStart(t *rapid.T, w *modelWatcher) Start {
	var start Start
	switch rapid.SampledFrom([]string{"state", "state", "now", "after", "after", "revision"}).Draw(t, "start") {
	case "state":
		w.begin(time.Now())
		return FromState()
	case "now":
		w.resume(m.model.head, time.Now())
		return FromNow()
	case "after":
		p := m.drawPosition(t)
		w.resume(p, time.Now())
		start = After(p)
	case "revision":
		p := Position{Epoch: m.model.epoch, Revision: m.drawRevision(t)}
		w.resume(p, time.Now())
		start = AfterRevision(p.Revision)
	}
	if chance(t, 3, "allow future") {
		w.mayBeAhead = true
		start = start.AllowFuture()
	}
	return start
}

package watchcache

// What the machine reads, compared with the model.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// checkNotReady checks what a mirror says before its first listing.
func (m *machine) checkNotReady(t *rapid.T) {
	canceled, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, apply := m.c.Apply(Commit[thing]{Revision: 1})
	_, since := m.c.Since(0)
	_, at := m.c.SnapshotAt(0)
	_, watch := m.c.Watch(canceled, WatchOptions[thing]{})
	for what, err := range map[string]error{
		"Apply": apply, "Since": since, "SnapshotAt": at, "Watch": watch,
		"Progress": m.c.Progress(1), "Trim": m.c.Trim(Position{Epoch: "e"}), "WaitReady": m.c.WaitReady(canceled),
	} {
		if !errors.Is(err, ErrNotReady) {
			t.Fatalf("%s before the first listing: %v, want ErrNotReady", what, err)
		}
	}
}

// Check compares reads with the model.
func (m *machine) Check(t *rapid.T) {
	m.compareSnapshot(t, m.c.Snapshot(), m.model.state(), m.model.head)
	m.compareStats(t)
}

// pastInterval is an interval that was asked for a while ago.
type pastInterval struct {
	interval *Interval[thing]
	want     []Event[thing]
}

// ReadPast reads past states and history.
func (m *machine) ReadPast(t *rapid.T) {
	revision := m.drawRevision(t)
	want := m.model.reaches(revision)
	m.readSince(t, revision)
	s, err := m.c.SnapshotAt(revision)
	if !errors.Is(err, want) {
		t.Fatalf("SnapshotAt(%d) in [%v, %v]: %v, want %v", revision, m.model.oldest, m.model.head, err, want)
	}
	if err != nil {
		return
	}
	at := s.Position()
	if err := m.model.resumable(at); err != nil || at.Revision != revision {
		t.Fatalf("SnapshotAt(%d) is at %v, want a position of that revision that can be resumed (%v)", revision, at, err)
	}
	for _, c := range m.model.commits[m.model.after(at):] {
		if c.at.Revision <= revision && len(c.changes) > 0 {
			t.Fatalf("SnapshotAt(%d) is at %v, from where %v would come again", revision, at, c.at)
		}
	}
	m.compareSnapshot(t, s, m.model.stateAt(revision), at)
	if again, _ := m.c.SnapshotAt(revision); again != s {
		t.Fatalf("SnapshotAt(%d) twice gives two snapshots, want one", revision)
	}
}

func (m *machine) readSince(t *rapid.T, revision uint64) {
	interval, err := m.c.Since(revision)
	if want := m.model.reaches(revision); !errors.Is(err, want) {
		t.Fatalf("Since(%d) in [%v, %v]: %v, want %v", revision, m.model.oldest, m.model.head, err, want)
	}
	if err == nil {
		var want []Event[thing]
		for _, c := range m.model.commits[m.model.after(Position{Revision: revision, Part: math.MaxUint32}):] {
			events, _ := selection{}.events(c)
			want = append(want, events...)
		}
		after, upTo := interval.Bounds()
		if after.Revision != revision || m.model.resumable(after) != nil || upTo != m.model.head || interval.Len() != len(want) {
			t.Fatalf("Since(%d) has bounds %v, %v and %d events, want what can be resumed, %v and %d", revision, after, upTo, interval.Len(), m.model.head, len(want))
		}
		m.past = append(m.past, pastInterval{interval, want})
		if events, err := collect(interval); err != nil || !slices.Equal(events, want) {
			t.Fatalf("Since(%d) gives %+v, %v, want %+v", revision, events, err, want)
		}
	}
	for _, p := range m.past { // older ones give what they said, or say that it is gone
		events, err := collect(p.interval)
		if err != nil && !errors.Is(err, ErrExpired) || err == nil && len(events) < len(p.want) || !slices.Equal(events, p.want[:len(events)]) {
			t.Fatalf("an older interval gives %+v, %v, want %+v or as much of it as is left", events, err, p.want)
		}
	}
}

func collect(interval *Interval[thing]) (events []Event[thing], err error) {
	for ev, e := range interval.All() {
		if e != nil {
			return events, e
		}
		events = append(events, ev)
	}
	return events, nil
}

func (m *machine) compareSnapshot(t *rapid.T, s *Snapshot[thing], state map[string]Item[thing], at Position) {
	if s.Position() != at || s.Len() != len(state) {
		t.Fatalf("a snapshot is at %v with %d keys, want %v with %d", s.Position(), s.Len(), at, len(state))
	}
	for _, sel := range selections {
		if sel.loud || sel.index.Name != "" && !m.model.indexed {
			continue
		}
		want := sel.items(state)
		var forward, backward iter.Seq[Item[thing]]
		switch {
		case sel.index.Name != "":
			sel = selection{index: sel.index}
			want = sel.items(state)
			forward, backward = s.Index(sel.index.Name, sel.index.Value), s.IndexBackward(sel.index.Name, sel.index.Value)
		case sel.prefix != "":
			forward, backward = s.Prefix(sel.prefix), s.PrefixBackward(sel.prefix)
		case sel.key != "":
			item, ok := s.Get(sel.key)
			if ok != (len(want) > 0) || ok && item != want[0] {
				t.Fatalf("Get(%q) is %v, %v, want %v", sel.key, item, ok, want)
			}
			continue
		default:
			forward, backward = s.Range(sel.from, sel.to), s.RangeBackward(sel.from, sel.to)
			if n := s.Count(sel.from, sel.to); n != len(want) {
				t.Fatalf("Count(%q, %q) is %d, want %d", sel.from, sel.to, n, len(want))
			}
		}
		if got := slices.Collect(forward); !slices.Equal(got, want) {
			t.Fatalf("%+v of the snapshot at %v is %v, want %v", sel, at, got, want)
		}
		slices.Reverse(want)
		if got := slices.Collect(backward); !slices.Equal(got, want) {
			t.Fatalf("%+v of the snapshot at %v backward is %v, want %v", sel, at, got, want)
		}
	}
}

func (m *machine) compareStats(t *rapid.T) {
	got := m.c.Stats()
	want := Stats{
		Position: m.model.head, Oldest: m.model.oldest, Objects: len(m.model.state()),
		Watchers: m.living(), Deliveries: m.model.delivered, Endings: m.model.ended,
		SinceProgress: got.SinceProgress, Ready: true,
	}
	want.History, want.HistoryBytes = m.model.history()
	for _, w := range m.watchers {
		switch w.phase {
		case PhaseInitial:
			want.Initial++
		case PhaseStreaming:
			want.Streaming++
			want.MaxLag = max(want.MaxLag, w.lag(math.MaxInt))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("Stats are\n%+v, want\n%+v", got, want)
	}
}

package watchcache

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRingModel does random things to a ring and compares it with a slice that
// keeps everything.
func TestRingModel(t *testing.T) { rapid.Check(t, runRing) }

func runRing(t *rapid.T) {
	m := &ringModel{columns: columns{age: true, weight: rapid.Bool().Draw(t, "weights"), derived: rapid.Bool().Draw(t, "derived")}}
	m.limits.capacity = rapid.OneOf(rapid.IntRange(1, 70), rapid.IntRange(500, 1500)).Draw(t, "capacity")
	m.limits.keep = rapid.IntRange(0, min(m.limits.capacity, 20)).Draw(t, "keep")
	if rapid.Bool().Draw(t, "with retention") {
		m.limits.retention = time.Duration(rapid.IntRange(1, 20).Draw(t, "retention"))
	}
	if m.columns.weight && rapid.Bool().Draw(t, "with bytes") {
		m.limits.bytes = rapid.Int64Range(1, 400).Draw(t, "bytes")
	}
	m.ring = newRing[uint64](m.limits, m.columns)
	t.Repeat(rapid.StateMachineActions(m))
}

// ringModel is a ring, and all records that it ever had: those from oldest on are
// history, in commits that begin at the given places.
type ringModel struct {
	ring    *ring[uint64]
	limits  ringLimits
	columns columns

	records []record[uint64] // by sequence number
	begins  []int            // of commits
	oldest  int
	now     time.Duration
	at      Position
}

// Commit puts some events and publishes them as one commit, within the limits.
func (m *ringModel) Commit(t *rapid.T) {
	m.put(t)
	m.ring.publish()
	m.trim(t)
}

// put puts the events of one commit.
func (m *ringModel) put(t *rapid.T) {
	m.now += time.Duration(rapid.IntRange(0, 3).Draw(t, "time"))
	if m.at.Revision > 0 && rapid.IntRange(0, 4).Draw(t, "continues") == 0 {
		m.at.Part++
	} else {
		m.at = Position{Revision: m.at.Revision + rapid.SampledFrom([]uint64{1, 1, 1, 7, 1 << 33}).Draw(t, "revisions")}
	}
	n := rapid.OneOf(rapid.IntRange(1, 3), rapid.IntRange(1, 3), rapid.IntRange(1, 90)).Draw(t, "events")
	for i := range n {
		rec := record[uint64]{
			event:         Event[uint64]{Type: Modified, Key: "k", Object: uint64(len(m.records)), Revision: m.at.Revision},
			priorRevision: rapid.Uint64Range(0, m.at.Revision).Draw(t, "prior"),
			part:          m.at.Part,
			age:           m.now,
		}
		if m.columns.weight {
			rec.weight = rapid.Int64Range(0, 50).Draw(t, "weight")
		}
		if m.columns.derived {
			rec.derived.after = &derived{size: int64(len(m.records))}
		}
		if i == 0 {
			m.begins = append(m.begins, len(m.records))
		} else {
			m.ring.more()
			m.records[len(m.records)-1].event.More = true
		}
		m.ring.put(&rec)
		m.records = append(m.records, rec)
	}
}

// Abandon puts a commit and takes it back.
func (m *ringModel) Abandon(t *rapid.T) {
	records, begins, at := len(m.records), len(m.begins), m.at
	m.put(t)
	m.ring.abandon()
	m.records, m.begins, m.at = m.records[:records], m.begins[:begins], at
}

// Age lets time pass with no commit.
func (m *ringModel) Age(t *rapid.T) {
	m.now += time.Duration(rapid.IntRange(1, 30).Draw(t, "time"))
	m.trim(t)
}

// Drop drops commits by hand, the newest perhaps too.
func (m *ringModel) Drop(t *rapid.T) {
	borders := []int{len(m.records)}
	for _, begin := range m.begins {
		if begin >= m.oldest {
			borders = append(borders, begin)
		}
	}
	m.oldest = rapid.SampledFrom(borders).Draw(t, "oldest")
	m.ring.drop(uint64(m.oldest), rapid.Bool().Draw(t, "exact"))
}

// Clear drops everything.
func (m *ringModel) Clear(t *rapid.T) {
	if rapid.IntRange(0, 5).Draw(t, "clear") == 0 {
		m.ring.clear()
		m.oldest = len(m.records)
		m.begins = nil
	}
}

// trim cuts where the ring says, which must be where the model says.
func (m *ringModel) trim(t *rapid.T) {
	want := m.cut()
	if got := max(m.ring.cut(m.now), uint64(m.oldest)); got != uint64(want) { // below oldest: nothing to cut
		t.Fatalf("the cut at %d is %d in [%d, %d), want %d", m.now, got, m.oldest, len(m.records), want)
	}
	m.oldest = want
	m.ring.drop(uint64(want), rapid.Bool().Draw(t, "exact"))
}

// cut is where history must begin: whole commits go, the oldest first, while there
// is a reason to, and never the newest.
func (m *ringModel) cut() int {
	cut := m.oldest
	for i, begin := range m.begins {
		if begin != cut || i == len(m.begins)-1 {
			continue
		}
		end := m.begins[i+1]
		many := len(m.records)-cut > m.limits.capacity
		big := m.limits.bytes > 0 && m.weight(cut) > m.limits.bytes
		old := m.limits.retention > 0 && m.records[cut].age+m.limits.retention <= m.now && len(m.records)-end >= m.limits.keep
		if !many && !big && !old {
			break
		}
		cut = end
	}
	return cut
}

func (m *ringModel) weight(from int) (weight int64) {
	for _, rec := range m.records[from:] {
		weight += rec.weight
	}
	return weight
}

// Check compares every event, and what the ring says about all of them.
func (m *ringModel) Check(t *rapid.T) {
	if m.ring.head.Load() != uint64(len(m.records)) || m.ring.len() != len(m.records)-m.oldest || m.ring.bytes.Load() != m.weight(m.oldest) {
		t.Fatalf("history is %d events up to %d, of %d bytes, want %d up to %d, of %d",
			m.ring.len(), m.ring.head.Load(), m.ring.bytes.Load(), len(m.records)-m.oldest, len(m.records), m.weight(m.oldest))
	}
	for seq, rec := range m.records {
		c, i := m.ring.find(uint64(seq))
		if c == nil {
			if seq >= m.oldest {
				t.Fatalf("event %d is missing from history [%d, %d)", seq, m.oldest, len(m.records))
			}
			continue // else it may still be there, and must be what it was
		}
		got := record[uint64]{event: c.slots[i], priorRevision: c.priorRevision(i), part: c.part(i), age: time.Duration(c.ages[i]), weight: rec.weight, derived: rec.derived}
		if m.columns.weight {
			got.weight = c.weights[i]
		}
		if m.columns.derived {
			got.derived = c.derived[i]
		}
		if got != rec {
			t.Fatalf("event %d is %+v, want %+v", seq, got, rec)
		}
	}
	m.checkAfter(t)
	m.ring.check()
}

// checkAfter checks where a reader goes on after a position.
func (m *ringModel) checkAfter(t *rapid.T) {
	p := Position{Revision: m.at.Revision, Part: m.at.Part}
	if m.oldest < len(m.records) {
		rec := m.records[rapid.IntRange(m.oldest, len(m.records)-1).Draw(t, "after")]
		p = Position{Revision: rec.event.Revision - rapid.Uint64Range(0, 1).Draw(t, "before"), Part: rec.part}
	}
	want := m.oldest
	for want < len(m.records) && !before(p, Position{Revision: m.records[want].event.Revision, Part: m.records[want].part}) {
		want++
	}
	if got := m.ring.after(p); got != uint64(want) {
		t.Fatalf("after %v comes event %d, want %d", p, got, want)
	}
}

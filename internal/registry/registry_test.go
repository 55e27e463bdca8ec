package registry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/watchcache/watchcache/internal/ranges"
	"github.com/watchcache/watchcache/internal/wakeup"
)

// change is one event of the model: its key, and its values in the one index.
type change struct {
	key           string
	before, after []string
}

func (ch change) concerns(s Selection) bool {
	if !s.HasKey(ch.key) {
		return false
	}
	return s.Index == 0 || slices.Contains(ch.before, s.Value) || slices.Contains(ch.after, s.Value)
}

// member is a watcher of the model.
type member struct {
	Member
	selection Selection
	signal    wakeup.Signal
	parked    bool
	quiet     int // so many more events of its own before it may be reported again
}

// world is a registry beside a history that is kept whole.
type world struct {
	t       *testing.T
	r       *rand.Rand
	reg     *Registry
	history []change
	oldest  uint64
	members []*member
}

func (w *world) head() uint64 { return uint64(len(w.history)) }

// first returns the first event from seq on that the selection selects.
func (w *world) first(s Selection, seq uint64) (uint64, bool) {
	for ; seq < w.head(); seq++ {
		if w.history[seq].concerns(s) {
			return seq, true
		}
	}
	return 0, false
}

func (w *world) lag(m *member) (n int) {
	for seq := m.Cursor.Get(); seq < w.head(); seq++ {
		if w.history[seq].concerns(m.selection) {
			n++
		}
	}
	return n
}

func (w *world) drawSelection() (s Selection) {
	key := fmt.Sprint(w.r.IntN(6))
	switch w.r.IntN(5) {
	case 0:
		s.Key = key
	case 1:
		s.Range = ranges.Range{From: key}
	case 2:
		s.Range = ranges.Range{From: "1", To: key + "5"}
	}
	if w.r.IntN(3) == 0 {
		s.Index, s.Value = 1, fmt.Sprint("v", w.r.IntN(3))
	}
	return s
}

// join adds a watcher that begins somewhere in history: as Watch does, it looks
// through what the group's list does not have yet.
func (w *world) join() {
	m := &member{selection: w.drawSelection()}
	m.Owner, m.LagLimit = m, w.r.IntN(4)*2
	g := w.reg.Join(&m.Member, m.selection, w.head())
	from := w.oldest + uint64(w.r.IntN(int(w.head()-w.oldest)+1))
	m.Cursor.Set(from)
	if !g.All() && from < g.Since() {
		var found []uint64
		to := g.Since()
		if w.r.IntN(2) == 0 { // another covered a part while this one looked
			to += uint64(w.r.IntN(int(w.head()-to) + 1))
		}
		for seq := from; seq < to; seq++ {
			if w.history[seq].concerns(m.selection) {
				found = append(found, seq)
			}
		}
		w.reg.Cover(g, from, found)
	}
	if !w.reg.Stream(&m.Member, w.head(), w.oldest) {
		w.t.Fatalf("%+v from %d is refused, history begins at %d", m.selection, from, w.oldest)
	}
	w.members = append(w.members, m)
}

// late is a watcher that looked through history for so long that history has
// dropped something: it may go on only if it does not need that.
func (w *world) late() {
	if len(w.members) == 0 {
		return
	}
	m := w.members[w.r.IntN(len(w.members))]
	g := m.group
	from := uint64(w.r.IntN(int(w.head()) + 1))
	if m.parked || !g.all && from < g.Since() {
		return
	}
	w.reg.Park(&m.Member)
	m.Cursor.Set(from)
	next, ok := w.first(m.selection, from)
	needs := ok && next < w.oldest || g.all && from < w.oldest
	if w.reg.Stream(&m.Member, w.head(), w.oldest) == needs {
		w.t.Fatalf("%+v from %d, next %d: taken %v, history begins at %d", m.selection, from, next, !needs, w.oldest)
	}
	m.parked, m.quiet = needs, 0
}

// commit adds events, and checks which groups are told and who lags.
func (w *world) commit() {
	values := func() []string { return []string{"v0", "v1", "v2"}[w.r.IntN(3):][:w.r.IntN(2)] }
	from := w.head()
	for range 1 + w.r.IntN(3) {
		ch := change{fmt.Sprint(w.r.IntN(6)), values(), values()}
		w.history = append(w.history, ch)
		w.reg.Record(w.head()-1, w.oldest, ch.key, [][]string{ch.before}, [][]string{ch.after})
	}
	reported := map[*Member]bool{}
	w.reg.Lagging(w.head(), func(m *Member) { reported[m] = true })
	touched := w.reg.Touched()
	for i, g := range touched {
		if slices.Contains(touched[:i], g) {
			w.t.Fatal("a group is told twice of one commit")
		}
		if _, ok := w.first(g.Selection(), from); !ok {
			w.t.Fatalf("%+v is told of a commit that does not concern it", g.Selection())
		}
	}
	for _, m := range w.members {
		if _, ok := w.first(m.selection, from); ok && !m.group.all && !slices.Contains(touched, m.group) {
			w.t.Fatalf("%+v is not told of a commit that concerns it", m.selection)
		}
		w.checkLag(m, reported[&m.Member], from)
	}
	w.reg.Done()
	if len(w.reg.Touched()) != 0 {
		w.t.Fatal("groups are left over")
	}
}

// checkLag: a watcher is reported in the commit with which it is its limit
// behind, and then not before as many more events of its own have come.
func (w *world) checkLag(m *member, reported bool, from uint64) {
	came := 0
	for _, ch := range w.history[from:] {
		if ch.concerns(m.selection) {
			came++
		}
	}
	m.quiet = max(0, m.quiet-came)
	want := came > 0 && m.quiet == 0 && !m.parked && m.LagLimit > 0 && w.lag(m) >= m.LagLimit
	if reported != want {
		w.t.Fatalf("%+v: reported %v, with a lag of %d, limit %d, %d new, quiet for %d, parked %v",
			m.selection, reported, w.lag(m), m.LagLimit, came, m.quiet, m.parked)
	}
	if reported {
		m.quiet = m.LagLimit
	}
}

// drop lets history begin later, and checks who is judged.
func (w *world) drop() {
	before := w.oldest
	w.oldest += uint64(w.r.IntN(int(w.head()-w.oldest) + 1))
	judged := map[*Member]bool{}
	w.reg.Overrun(w.oldest, func(m *Member) { judged[m] = true })
	for _, m := range w.members {
		next, ok := w.first(m.selection, m.Cursor.Get())
		needs := ok && next < w.oldest
		if judged[&m.Member] != (needs && !m.parked) {
			w.t.Fatalf("%+v at %d, next %d: judged %v as history goes from %d to %d, parked %v",
				m.selection, m.Cursor.Get(), next, judged[&m.Member], before, w.oldest, m.parked)
		}
		m.parked = m.parked || needs
	}
}

// take has a watcher take some events, and checks that it finds the right ones.
func (w *world) take(m *member) {
	if m.parked {
		return
	}
	for range w.r.IntN(4) {
		cursor := m.Cursor.Get()
		want, ok := w.first(m.selection, cursor)
		got, found := cursor, cursor < w.head()
		if !m.group.all {
			got, found = m.group.Next(cursor)
		}
		if found != ok || ok && got != want {
			w.t.Fatalf("%+v at %d finds %d, %v; want %d, %v", m.selection, cursor, got, found, want, ok)
		}
		if lag := w.lag(m); m.group.Lag(cursor, w.head()) != lag {
			w.t.Fatalf("%+v at %d lags by %d, want %d", m.selection, cursor, m.group.Lag(cursor, w.head()), lag)
		}
		if earlier := w.r.IntN(int(w.head()) + 1); m.group.Lag(cursor, uint64(earlier)) > w.lag(m) || earlier <= int(cursor) && m.group.Lag(cursor, uint64(earlier)) != 0 {
			w.t.Fatalf("%+v at %d lags by %d at %d", m.selection, cursor, m.group.Lag(cursor, uint64(earlier)), earlier)
		}
		if !ok {
			return
		}
		m.Cursor.Set(want + 1)
	}
}

func (w *world) leave(i int) {
	m := w.members[i]
	w.reg.Leave(&m.Member, &m.signal)
	w.members = slices.Delete(w.members, i, i+1)
}

func TestRegistryIsWhatALookThroughHistoryIs(t *testing.T) {
	for seed := range uint64(300) {
		w := &world{t: t, r: rand.New(rand.NewPCG(seed, 3)), reg: New()}
		for range 300 {
			switch n := w.r.IntN(10); {
			case n < 1:
				w.join()
			case n < 4:
				w.commit()
			case n < 5:
				w.drop()
				w.late()
			case len(w.members) == 0:
			case n < 9:
				w.take(w.members[w.r.IntN(len(w.members))])
			case w.r.IntN(3) == 0:
				w.leave(w.r.IntN(len(w.members)))
			}
		}
		for len(w.members) > 0 {
			w.leave(0)
		}
		if w.reg.Groups() != 0 || len(w.reg.indexed) != 0 || w.reg.plain.size != 0 || w.reg.unread.Len() != 0 || w.reg.everything.size != 0 {
			t.Fatalf("seed %d: left behind: %+v", seed, w.reg)
		}
	}
}

func TestWhoWaitsIsWokenOnce(t *testing.T) {
	r := New()
	var m, other Member
	var signal wakeup.Signal
	g := r.Join(&m, Selection{Key: "a"}, 0)
	r.Join(&other, Selection{Key: "b"}, 0)
	all, mine := g.Wake.Arm(), signal.Arm()
	g.WakeOne(&signal)
	fire := func(key string) {
		r.Record(0, 0, key, nil, nil)
		for _, g := range r.Touched() {
			g.Fire()
		}
		r.Done()
	}
	woken := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	if fire("b"); woken(all) || woken(mine) {
		t.Fatal("woken by another key")
	}
	if fire("a"); !woken(all) || !woken(mine) {
		t.Fatal("not woken")
	}
	if mine = signal.Arm(); woken(mine) {
		t.Fatal("woken before it waits again")
	}
	g.WakeOne(&signal)
	r.Leave(&m, &signal)
	if fire("a"); woken(mine) || len(g.waiters) != 0 {
		t.Fatal("one that has left is woken, or kept")
	}
}

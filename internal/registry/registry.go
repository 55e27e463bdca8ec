// Package registry knows which watchers an event concerns. Watchers with the
// same selection form a [Group]; an event reaches its groups through a map by
// key, an interval tree by range, and a map by index value, so that it costs
// nothing for the groups that it does not touch.
//
// It also finds, when history drops events or grows, exactly the watchers that
// still need what is dropped, or have fallen too far behind. Both are lazy
// deadlines on the axis of sequence numbers: a watcher stands in a heap by where
// it was when it was last looked at, and is looked at again only when that place
// is reached. A watcher that keeps up is met once per turnover of history.
package registry

import (
	"github.com/watchcache/watchcache/internal/minheap"
	"github.com/watchcache/watchcache/internal/ranges"
	"github.com/watchcache/watchcache/internal/wakeup"
)

// Selection is what decides, without calling user code, whether an event may
// concern a watcher: a key or a range of keys, and an index value.
type Selection struct {
	Index int    // the number of an index plus one; 0: none
	Value string // the value in that index
	Key   string // exactly this key; "": see Range
	Range ranges.Range
}

// Everything reports whether the selection selects all keys.
func (s Selection) Everything() bool { return s == Selection{} }

// HasKey reports whether the selection lets a key pass, its index left aside.
func (s Selection) HasKey(key string) bool {
	if s.Key != "" {
		return key == s.Key
	}
	return s.Range.Contains(key)
}

// Registry has all groups of one cache. Its methods need the cache's lock; those
// of [Group] that do not say so.
type Registry struct {
	everything *Group
	groups     map[Selection]*Group
	plain      scope
	indexed    map[indexValue]*scope
	unread     minheap.Heap[*Group] // by the first entry that history still has
	touched    []*Group             // groups of the commit in hand
}

type indexValue struct {
	index int
	value string
}

// scope is the groups that one index value has, or that have none.
type scope struct {
	all    *Group
	keys   map[string]*Group
	ranges ranges.Set[*Group]
	size   int
}

// New returns a registry without groups, but that of those who select everything.
func New() *Registry { return &Registry{everything: &Group{all: true}} }

// Everything returns the group of those who select all events.
func (r *Registry) Everything() *Group { return r.everything }

// Join makes m a member of the selection's group, which is complete from head
// on if it is new. m is not looked at for overrun or lag before [Registry.Stream].
func (r *Registry) Join(m *Member, selection Selection, head uint64) *Group {
	g := r.Everything()
	if !selection.Everything() {
		g = r.groups[selection]
		if g == nil {
			g = &Group{selection: selection, since: head}
			r.add(g)
		}
	}
	g.size++
	m.group = g
	return g
}

// Leave ends the membership of m, whose own wake-up is signal.
func (r *Registry) Leave(m *Member, signal *wakeup.Signal) {
	g := m.group
	if g == nil {
		return
	}
	r.Park(m)
	g.Forget(signal)
	g.size--
	if g.size == 0 && !g.all {
		r.remove(g)
	}
	m.group = nil
}

// Park stops looking at m for overrun and lag; m stays in its group.
func (r *Registry) Park(m *Member) {
	m.group.need.Remove(byNeed{m})
	m.group.due.Remove(byDue{m})
}

// Stream starts looking at m, whose cursor is set. head is the sequence number
// of the next event, and history begins at oldest. It returns false, and does not
// look at m, if history has dropped an event that m needs.
func (r *Registry) Stream(m *Member, head, oldest uint64) bool {
	m.need = m.Cursor.Get()
	if m.group.all && m.need < oldest || m.need < m.group.gone {
		return false
	}
	m.group.need.Push(byNeed{m})
	if m.LagLimit > 0 {
		m.due = r.nextDue(m, head)
		m.group.due.Push(byDue{m})
	}
	return true
}

func (r *Registry) nextDue(m *Member, head uint64) uint64 {
	count := m.group.count
	if m.group.all {
		count = head
	}
	// The lag cannot reach the limit before so many more events have come.
	return count + uint64(max(1, m.LagLimit-m.lag(head)))
}

// Cover adds to a group's list what a scan of history from the sequence number
// since on found below g.Since(), so that the list is complete from there.
func (r *Registry) Cover(g *Group, since uint64, found []uint64) {
	if g.all || since >= g.since {
		return
	}
	found = found[:search(found, g.since)] // another may have covered a part meanwhile
	g.since = since
	if len(found) == 0 {
		return
	}
	later := g.load()
	list := newSeqList(found, len(found)+len(later)+4)
	copy(list.seqs[len(found):], later)
	list.n.Add(int64(len(later)))
	g.list.Store(list)
	g.first = found[0]
	r.unread.Push(g)
}

// Record notes that the event seq concerns key, and the index values that its
// object had before and has after. History begins at oldest.
func (r *Registry) Record(seq, oldest uint64, key string, before, after [][]string) {
	if r.plain.size > 0 {
		r.record(&r.plain, seq, oldest, key)
	}
	if len(r.indexed) == 0 {
		return
	}
	for _, values := range [...][][]string{before, after} {
		for index := range values {
			for _, value := range values[index] {
				if s := r.indexed[indexValue{index + 1, value}]; s != nil {
					r.record(s, seq, oldest, key)
				}
			}
		}
	}
}

func (r *Registry) record(s *scope, seq, oldest uint64, key string) {
	touch := func(g *Group) {
		if g.touched == seq+1 {
			return
		}
		if g.touched = seq + 1; g.firstPos == 0 {
			g.first = seq
			r.unread.Push(g)
		}
		g.append(seq, oldest)
		if !g.pending {
			g.pending = true
			r.touched = append(r.touched, g)
		}
	}
	if s.all != nil {
		touch(s.all)
	}
	if g := s.keys[key]; g != nil {
		touch(g)
	}
	if !s.ranges.Empty() {
		s.ranges.Visit(key, touch)
	}
}

// Overrun calls judge with every member that still needs an event below oldest,
// and parks it.
func (r *Registry) Overrun(oldest uint64, judge func(*Member)) {
	r.everything.overrun(r, oldest, judge)
	for r.unread.Len() > 0 && r.unread.Min().first < oldest {
		g := r.unread.Min()
		seqs := g.load()
		g.gone = seqs[search(seqs, oldest)-1] + 1
		g.overrun(r, oldest, judge)
		if next, ok := g.Next(oldest); ok {
			g.first = next
			r.unread.Fix(g)
		} else {
			r.unread.Remove(g)
		}
		g.compact(oldest)
	}
}

func (g *Group) overrun(r *Registry, oldest uint64, judge func(*Member)) {
	for g.need.Len() > 0 && g.need.Min().need < oldest {
		m := g.need.Min()
		cursor := m.Cursor.Get()
		needs := cursor < oldest
		if needs && !g.all {
			next, ok := g.Next(cursor)
			needs = ok && next < oldest
		}
		if needs {
			r.Park(m.Member)
			judge(m.Member)
			continue
		}
		m.need = max(cursor, oldest) // a quiet selection has nothing below oldest
		g.need.Fix(m)
	}
}

// Lagging calls judge with every member, of the groups that the commit in hand
// touched, that is its limit or more behind. head is the sequence number of the
// next event. Each is met again when it is its limit further behind.
func (r *Registry) Lagging(head uint64, judge func(*Member)) {
	r.everything.lagging(r, head, head, judge)
	for _, g := range r.touched {
		g.lagging(r, g.count, head, judge)
	}
}

func (g *Group) lagging(r *Registry, count, head uint64, judge func(*Member)) {
	for g.due.Len() > 0 && g.due.Min().due <= count {
		m := g.due.Min()
		if m.lag(head) >= m.LagLimit {
			m.due = count + uint64(m.LagLimit)
			judge(m.Member)
		} else {
			m.due = r.nextDue(m.Member, head)
		}
		g.due.Fix(m)
	}
}

// Touched returns the groups that events were recorded for since the last Done.
func (r *Registry) Touched() []*Group { return r.touched }

// Done forgets the groups of the commit in hand. A list that one huge commit
// made is given back. The writer's turn is enough for Touched and Done.
func (r *Registry) Done() {
	for _, g := range r.touched {
		g.pending = false
	}
	clear(r.touched)
	if cap(r.touched) > 1024 {
		r.touched = nil
	}
	r.touched = r.touched[:0]
}

// Groups returns how many groups there are, that of all events left aside.
func (r *Registry) Groups() int { return len(r.groups) }

func (r *Registry) scopeOf(s Selection, create bool) *scope {
	if s.Index == 0 {
		return &r.plain
	}
	at := indexValue{s.Index, s.Value}
	found := r.indexed[at]
	if found == nil && create {
		if r.indexed == nil {
			r.indexed = make(map[indexValue]*scope)
		}
		found = new(scope)
		r.indexed[at] = found
	}
	return found
}

func (r *Registry) add(g *Group) {
	if r.groups == nil {
		r.groups = make(map[Selection]*Group)
	}
	r.groups[g.selection] = g
	s := r.scopeOf(g.selection, true)
	s.size++
	switch sel := g.selection; {
	case sel.Key != "":
		if s.keys == nil {
			s.keys = make(map[string]*Group)
		}
		s.keys[sel.Key] = g
	case sel.Range != ranges.Range{}:
		s.ranges.Add(sel.Range, g)
	default:
		s.all = g
	}
}

func (r *Registry) remove(g *Group) {
	delete(r.groups, g.selection)
	g.list.Store(nil) // an ended watcher that somebody keeps does not keep it
	r.unread.Remove(g)
	s := r.scopeOf(g.selection, false)
	s.size--
	switch sel := g.selection; {
	case sel.Key != "":
		delete(s.keys, sel.Key)
	case sel.Range != ranges.Range{}:
		s.ranges.Remove(sel.Range)
	default:
		s.all = nil
	}
	if s.size == 0 && g.selection.Index != 0 {
		delete(r.indexed, indexValue{g.selection.Index, g.selection.Value})
	}
}

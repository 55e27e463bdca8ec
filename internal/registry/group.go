package registry

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/watchcache/watchcache/internal/cell"
	"github.com/watchcache/watchcache/internal/minheap"
	"github.com/watchcache/watchcache/internal/wakeup"
)

// Member is one watcher's place in its group. The owner embeds it.
type Member struct {
	// Cursor is the sequence number of the first event that the watcher has not
	// put behind it. Its consumer is the one writer while it streams.
	Cursor cell.Cell[uint64]
	// Owner is the watcher itself.
	Owner any
	// LagLimit is how many events behind the watcher is to be reported by
	// [Registry.Lagging]; 0 is never.
	LagLimit int

	group   *Group
	need    uint64 // the cursor as it was when last looked at: a lower bound
	due     uint64 // the group's count of events at which the lag must be looked at
	needPos int32
	duePos  int32
}

func (m *Member) lag(head uint64) int { return m.group.Lag(m.Cursor.Get(), head) }

type byNeed struct{ *Member }

func (m byNeed) Key() uint64   { return m.need }
func (m byNeed) Place() *int32 { return &m.needPos }

type byDue struct{ *Member }

func (m byDue) Key() uint64   { return m.due }
func (m byDue) Place() *int32 { return &m.duePos }

// Group is all watchers with the same selection: they share one list of the
// events that touch it and their wake-ups. An event costs a group the same however
// many members it has, and costs other groups nothing.
type Group struct {
	// Rooms and Wake are fired after an event of the group became visible. In the
	// rooms sleep those consumers that need nothing else to wake them.
	Rooms wakeup.Rooms
	Wake  wakeup.Signal

	selection Selection
	all       bool // selects everything: its list is history itself
	size      int
	count     uint64 // events recorded so far
	since     uint64 // the list is complete from this sequence number on

	// list has the sequence numbers that touch the selection, ascending. The
	// writer appends under the cache's lock; consumers read without it.
	list atomic.Pointer[seqList]

	need minheap.Heap[byNeed] // streaming members, by what they still need
	due  minheap.Heap[byDue]  // those of them with a limit on lag

	// gone is the last entry that history has dropped, plus one: no member whose
	// cursor is below can go on.
	gone uint64
	// first is the list's first entry that history still has; the group stands
	// in Registry.unread by it while there is one.
	first    uint64
	firstPos int32
	touched  uint64 // the last sequence number recorded plus one: an event counts once
	pending  bool   // stands in Registry.touched; the writer's, in its turn

	waiting atomic.Bool
	waitMu  sync.Mutex
	waiters map[*wakeup.Signal]struct{} // single watchers' own wake-ups, for Wait
}

// Key and Place make groups items of Registry.unread.
func (g *Group) Key() uint64   { return g.first }
func (g *Group) Place() *int32 { return &g.firstPos }

// All reports whether the group selects every event.
func (g *Group) All() bool { return g.all }

// Selection returns what the group selects.
func (g *Group) Selection() Selection { return g.selection }

// Since returns the sequence number from which on the list is complete. It needs
// the cache's lock: it moves back before the longer list is there.
func (g *Group) Since() uint64 { return g.since }

// Next returns the first listed sequence number that is not below cursor. It
// takes no lock and sees all that was recorded before the cache's head, as the
// caller loaded it, was advanced.
func (g *Group) Next(cursor uint64) (seq uint64, ok bool) {
	seqs := g.load()
	i := search(seqs, cursor)
	if i == len(seqs) {
		return 0, false
	}
	return seqs[i], true
}

// Lag returns how many of the group's events, those below head, are not below
// cursor. It takes no lock.
func (g *Group) Lag(cursor, head uint64) int {
	switch {
	case !g.all:
		seqs := g.load()
		return max(0, search(seqs, head)-search(seqs, cursor))
	case cursor >= head:
		return 0
	}
	return int(head - cursor)
}

func (g *Group) load() []uint64 {
	list := g.list.Load()
	if list == nil {
		return nil
	}
	return list.seqs[:list.n.Load()]
}

// search returns the index of the first entry not below cursor. Consumers are
// mostly near the end, so that is looked at first.
func search(seqs []uint64, cursor uint64) int {
	n := len(seqs)
	if n == 0 || seqs[n-1] < cursor {
		return n
	}
	if n == 1 || seqs[n-2] < cursor {
		return n - 1
	}
	return sort.Search(n, func(i int) bool { return seqs[i] >= cursor })
}

// WakeOne has signal fired with the group's next event.
func (g *Group) WakeOne(signal *wakeup.Signal) {
	g.waitMu.Lock()
	if g.waiters == nil {
		g.waiters = make(map[*wakeup.Signal]struct{})
	}
	g.waiters[signal] = struct{}{}
	g.waitMu.Unlock()
	g.waiting.Store(true) // after the entry, before the caller's look: see Fire
}

// Forget undoes WakeOne.
func (g *Group) Forget(signal *wakeup.Signal) {
	if g.waiting.Load() {
		g.waitMu.Lock()
		delete(g.waiters, signal)
		g.waitMu.Unlock()
	}
}

// Fire wakes everybody who waits for an event of the group. The event must be
// visible already; then the order of the atomics is that of [wakeup.Rooms]
// and [wakeup.Signal].
func (g *Group) Fire() {
	g.Rooms.Fire()
	g.Wake.Fire()
	if g.waiting.Load() {
		g.waitMu.Lock()
		waiters := g.waiters
		g.waiters = nil
		g.waiting.Store(false)
		g.waitMu.Unlock()
		for signal := range waiters {
			signal.Fire()
		}
	}
}

// seqList is an append-only run of sequence numbers. Entries below n never
// change, so that they are read without a lock; a full list is replaced.
type seqList struct {
	n    atomic.Int64
	seqs []uint64
}

// append adds seq; what is below oldest may be forgotten on the way.
func (g *Group) append(seq, oldest uint64) {
	list := g.list.Load()
	if list == nil || int(list.n.Load()) == len(list.seqs) {
		live := g.load()
		live = live[search(live, oldest):]
		list = newSeqList(live, max(4, 2*len(live)))
		g.list.Store(list)
	}
	n := list.n.Load()
	list.seqs[n] = seq
	list.n.Store(n + 1)
	g.count++
}

// compact gives back a list that is mostly below oldest.
func (g *Group) compact(oldest uint64) {
	all := g.load()
	live := all[search(all, oldest):]
	if list := g.list.Load(); list != nil && len(list.seqs) > 32 && len(live) < len(list.seqs)/4 {
		g.list.Store(newSeqList(live, max(4, 2*len(live))))
	}
}

func newSeqList(seqs []uint64, capacity int) *seqList {
	list := &seqList{seqs: make([]uint64, capacity)}
	copy(list.seqs, seqs)
	list.n.Store(int64(len(seqs)))
	return list
}

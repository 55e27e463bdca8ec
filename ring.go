package watchcache

import (
	"sort"
	"sync/atomic"
	"time"

	"github.com/watchcache/watchcache/internal/invariant"
)

// ring is history: the recent events, numbered by a sequence that never starts
// again. Slots are written once and read without locks.
//
// Only the holder of the writer's turn changes a ring. It fills slots at and
// above head, which nobody looks at, and then advances head, under the cache's
// lock. A reader loads head first, then the window, then the chunk: all three
// are sequentially consistent atomics, so that whatever window and chunk it
// finds holds every slot below the head that it loaded. A chunk that was dropped
// meanwhile is missing or begins too high: the reader has been overtaken. A
// reader keeps a sequence number, never a chunk, so that it pins nothing.
type ring[T any] struct {
	head   atomic.Uint64 // events below it are visible
	oldest atomic.Uint64 // events below it are not history any more
	window atomic.Pointer[window[T]]
	parted atomic.Bool // an event ever had a part other than 0

	shift   uint                        // log2 of the events in a chunk
	tail    uint64                      // the next slot to fill: head, but inside a turn
	commit  uint64                      // where the newest commit begins
	lastEnd struct{ begin, end uint64 } // the last answer of endOf
	bytes   atomic.Int64                // what the events from oldest on weigh
	columns columns
	limits  ringLimits
}

// columns says which optional columns a cache's chunks have. age is for Retention,
// and comes with the first commit that brings a time of its own.
type columns struct{ age, weight, derived bool }

type ringLimits struct {
	capacity  int
	keep      int
	retention time.Duration
	bytes     int64
}

// window is the chunks that history consists of: chunk number n is at n & mask.
type window[T any] struct {
	mask uint64
	at   []atomic.Pointer[chunk[T]]
}

// chunk is a run of slots. Its fields are set when it is made: to change one, it
// is replaced by another that shares the slots. Slots that head has passed never
// change.
type chunk[T any] struct {
	base  uint64 // sequence number of slots[0]
	slots []Event[T]

	// What an event does not show, by slot. lived and prior are two forms of
	// the revision of the replaced object: how many revisions ago it was, and,
	// once a chunk has an event for which that does not fit 32 bits, itself.
	lived   []uint32
	prior   []uint64
	parts   []uint32 // Position.Part, where a commit continued its revision
	ages    []int64  // when it was committed, by the watchdog's time; noAge: its Time says so
	weights []int64
	derived []derivedPair
}

type derivedPair struct{ before, after *derived }

// record is one event on its way into the ring.
type record[T any] struct {
	event         Event[T]
	priorRevision uint64
	part          uint32
	age           time.Duration
	weight        int64
	derived       derivedPair
}

const (
	maxShift   = 9 // 512 events a chunk
	firstSlots = 16
)

func newRing[T any](limits ringLimits, columns columns) *ring[T] {
	r := &ring[T]{limits: limits, columns: columns}
	// A chunk is at most a sixteenth of the capacity: so much, at the most, can
	// be dropped and still be held by the chunk that history begins in.
	for r.shift < maxShift && 1<<(r.shift+5) <= limits.capacity {
		r.shift++
	}
	r.window.Store(newWindow[T](4))
	return r
}

func newWindow[T any](size int) *window[T] {
	return &window[T]{mask: uint64(size - 1), at: make([]atomic.Pointer[chunk[T]], size)}
}

// find returns the chunk that has the event seq and its place there, or nil if
// the event was dropped. seq must be below a head that the caller has loaded.
func (r *ring[T]) find(seq uint64) (*chunk[T], uint64) {
	for w := r.window.Load(); ; {
		c := w.at[(seq>>r.shift)&w.mask].Load()
		if c != nil && seq-c.base < uint64(len(c.slots)) { // below base wraps to a huge number
			return c, seq - c.base
		}
		now := r.window.Load()
		if now == w {
			return nil, 0
		}
		w = now // the one before was emptied when it was replaced
	}
}

// place returns where the chunk that has the event seq stands, and the sequence
// number up to which it would reach. Whoever keeps the place keeps no chunk: it is
// emptied when the chunk is dropped, or the window replaced.
func (r *ring[T]) place(seq uint64) (*atomic.Pointer[chunk[T]], uint64) {
	w, number := r.window.Load(), seq>>r.shift
	return &w.at[number&w.mask], (number + 1) << r.shift
}

func (c *chunk[T]) part(i uint64) uint32 {
	if c.parts == nil {
		return 0
	}
	return c.parts[i]
}

// priorRevision returns the revision of the object that the event replaced.
func (c *chunk[T]) priorRevision(i uint64) uint64 {
	if c.prior != nil {
		return c.prior[i]
	}
	return c.slots[i].Revision - uint64(c.lived[i])
}

// put fills the next slot. The event becomes visible with publish.
func (r *ring[T]) put(rec *record[T]) {
	c, i := r.room(r.tail, rec)
	c.slots[i] = rec.event
	lived := rec.event.Revision - rec.priorRevision
	if c.prior != nil {
		c.prior[i] = rec.priorRevision
	} else {
		c.lived[i] = uint32(lived)
	}
	if c.parts != nil {
		c.parts[i] = rec.part
	}
	if c.ages != nil {
		c.ages[i] = int64(rec.age)
	}
	if r.columns.weight {
		c.weights[i] = rec.weight
		r.bytes.Add(rec.weight)
	}
	if r.columns.derived {
		c.derived[i] = rec.derived
	}
	r.tail++
}

// more marks the event before the tail as followed by another of its commit.
func (r *ring[T]) more() {
	c, i := r.find(r.tail - 1)
	c.slots[i].More = true
}

// publish makes everything put since the last publish visible, as one commit.
func (r *ring[T]) publish() {
	if head := r.head.Load(); r.tail > head {
		r.commit = head
		r.head.Store(r.tail)
	}
}

// abandon forgets what was put since head.
func (r *ring[T]) abandon() {
	for r.tail > r.head.Load() {
		r.tail--
		c, i := r.find(r.tail)
		c.slots[i] = Event[T]{}
		if r.columns.weight {
			r.bytes.Add(-c.weights[i])
		}
		if r.columns.derived {
			c.derived[i] = derivedPair{}
		}
	}
}

// room returns the chunk and the place for the event seq, with the columns that
// rec needs.
func (r *ring[T]) room(seq uint64, rec *record[T]) (*chunk[T], uint64) {
	w, number := r.window.Load(), seq>>r.shift
	if number-r.oldest.Load()>>r.shift > w.mask {
		w = r.resize(2 * len(w.at))
	}
	at := &w.at[number&w.mask]
	c := at.Load()
	switch {
	case c == nil:
		size := uint64(1) << r.shift
		if seq == r.oldest.Load() { // the first event: start small
			size = min(size, firstSlots)
		}
		size = min(size, (number+1)<<r.shift-seq)
		c = r.newChunk(seq, int(size))
		at.Store(c)
	case seq-c.base == uint64(len(c.slots)): // a first chunk that grows
		c = r.remake(c, c.base, int(min(2*uint64(len(c.slots)), (number+1)<<r.shift-c.base)))
		at.Store(c)
	}
	// Columns that few caches need come with the first event that needs them.
	if wide := rec.event.Revision-rec.priorRevision > 1<<32-1; wide && c.prior == nil {
		c = c.withPrior()
		at.Store(c)
	}
	if r.columns.age && c.ages == nil {
		with := *c
		with.ages = noAges(len(c.slots))
		c = &with
		at.Store(c)
	}
	if rec.part != 0 && c.parts == nil {
		with := *c
		with.parts = make([]uint32, len(c.slots))
		r.parted.Store(true)
		c = &with
		at.Store(c)
	}
	return c, seq - c.base
}

func (c *chunk[T]) withPrior() *chunk[T] {
	with := *c
	with.prior = make([]uint64, len(c.slots))
	for i := range c.slots {
		with.prior[i] = c.slots[i].Revision - uint64(c.lived[i])
	}
	with.lived = nil
	return &with
}

func (r *ring[T]) newChunk(base uint64, size int) *chunk[T] {
	c := &chunk[T]{base: base, slots: make([]Event[T], size), lived: make([]uint32, size)}
	if r.columns.age {
		c.ages = noAges(size)
	}
	if r.columns.weight {
		c.weights = make([]int64, size)
	}
	if r.columns.derived {
		c.derived = make([]derivedPair, size)
	}
	return c
}

// remake copies a chunk into one that begins at base and has size slots.
func (r *ring[T]) remake(c *chunk[T], base uint64, size int) *chunk[T] {
	from := base - c.base
	made := r.newChunk(base, size)
	copy(made.slots, c.slots[from:])
	copy(made.ages, at(c.ages, from))
	copy(made.weights, at(c.weights, from))
	copy(made.derived, at(c.derived, from))
	if c.prior != nil {
		made.lived, made.prior = nil, make([]uint64, size)
		copy(made.prior, c.prior[from:])
	} else {
		copy(made.lived, c.lived[from:])
	}
	if c.parts != nil {
		made.parts = make([]uint32, size)
		copy(made.parts, c.parts[from:])
	}
	return made
}

// noAge marks an event that was committed at its own Time.
const noAge = -1

func noAges(size int) []int64 {
	ages := make([]int64, size)
	for i := range ages {
		ages[i] = noAge
	}
	return ages
}

func at[E any](column []E, from uint64) []E {
	if column == nil {
		return nil
	}
	return column[from:]
}

// resize replaces the window by one of another size. The old one is emptied then,
// because a reader may hold on to it.
func (r *ring[T]) resize(size int) *window[T] {
	old, w := r.window.Load(), newWindow[T](size)
	for n := r.oldest.Load() >> r.shift; n <= r.tail>>r.shift; n++ {
		if c := old.at[n&old.mask].Load(); c != nil && c.base>>r.shift == n {
			w.at[n&w.mask].Store(c)
		}
	}
	r.replace(w)
	return w
}

func (r *ring[T]) replace(w *window[T]) {
	old := r.window.Swap(w)
	for i := range old.at {
		old.at[i].Store(nil)
	}
}

// cut returns where history must begin so that its limits hold at the time now.
// It lies between commits, and never after the newest.
func (r *ring[T]) cut(now time.Duration) uint64 {
	oldest := r.oldest.Load()
	if oldest == r.commit {
		return oldest
	}
	cut := oldest
	if most := uint64(r.limits.capacity); r.tail-cut > most {
		cut = r.tail - most
	}
	bytes := r.bytes.Load()
	if r.limits.bytes > 0 && bytes > r.limits.bytes {
		for seq := oldest; seq < r.commit && (seq < cut || bytes > r.limits.bytes); seq++ {
			c, i := r.find(seq)
			bytes -= c.weights[i]
			cut = max(cut, seq+1)
		}
	}
	for cut > oldest && cut < r.commit { // to the end of a commit
		if c, i := r.find(cut - 1); !c.slots[i].More {
			break
		}
		cut++
	}
	for r.expires(cut, now) {
		cut = r.endOf(cut)
	}
	return min(cut, r.commit)
}

// expires reports whether the commit that begins at seq is to be dropped by its
// age: as a whole, and not as one of the newest events that are kept.
func (r *ring[T]) expires(seq uint64, now time.Duration) bool {
	return r.limits.retention > 0 && seq < r.commit && later(r.age(seq), r.limits.retention) <= now && r.ages(seq)
}

// ages reports whether age alone keeps the commit that begins at seq.
func (r *ring[T]) ages(seq uint64) bool {
	return seq < r.commit && r.endOf(seq)+uint64(r.limits.keep) <= r.tail
}

// endOf returns where the commit that begins at seq ends. The last answer is kept:
// a huge commit that has to stay is not looked through again and again.
func (r *ring[T]) endOf(seq uint64) uint64 {
	if r.lastEnd.begin != seq || r.lastEnd.end == 0 {
		end := seq + 1
		for c, i := r.find(seq); c.slots[i].More; c, i = r.find(end - 1) {
			end++
		}
		r.lastEnd.begin, r.lastEnd.end = seq, end
	}
	return r.lastEnd.end
}

// nextExpiry returns when the oldest commit is to be dropped by its age; false:
// not before there is another commit.
func (r *ring[T]) nextExpiry() (time.Duration, bool) {
	oldest := r.oldest.Load()
	if r.limits.retention == 0 || !r.ages(oldest) {
		return 0, false
	}
	return later(r.age(oldest), r.limits.retention), true
}

// age returns when the event seq, which history has, was committed.
func (r *ring[T]) age(seq uint64) time.Duration {
	c, i := r.find(seq)
	return time.Duration(c.ages[i])
}

// drop lets history begin at seq. What it held below is cleared: whole chunks at
// once, and the front of the chunk that history then begins in as soon as that
// is worth the copy. exact has it done now.
func (r *ring[T]) drop(seq uint64, exact bool) {
	oldest := r.oldest.Load()
	if r.columns.weight {
		for s := oldest; s < seq; s++ {
			c, i := r.find(s)
			r.bytes.Add(-c.weights[i])
		}
	}
	r.oldest.Store(seq)
	w := r.window.Load()
	for n := oldest >> r.shift; n < seq>>r.shift && n-oldest>>r.shift <= w.mask; n++ {
		w.at[n&w.mask].Store(nil)
	}
	if seq > oldest || exact {
		r.compact(seq, exact)
	}
	size, live := len(w.at), int(r.tail>>r.shift-seq>>r.shift)+1
	for size > 8 && live < size/4 {
		size /= 2
	}
	if size < len(w.at) {
		r.resize(size)
	}
	if invariant.Enabled {
		r.check()
	}
}

// compact replaces the chunk that history begins in by one without the events
// before it. A copy moves no more slots than it clears, except where bytes are
// limited: there at most a sixteenth of them may be held in vain.
func (r *ring[T]) compact(oldest uint64, exact bool) {
	w := r.window.Load()
	at := &w.at[(oldest>>r.shift)&w.mask]
	c := at.Load()
	if c == nil || oldest <= c.base {
		return
	}
	dead := oldest - c.base
	filled := min(r.tail-c.base, uint64(len(c.slots)))
	switch {
	case dead >= filled && filled == uint64(len(c.slots)):
		at.Store(nil) // nothing left, and no room either
		return
	case exact, dead >= 16 && dead >= r.tail-oldest:
	case r.limits.bytes > 0:
		var held int64
		for i := range dead {
			held += c.weights[i]
		}
		if held <= r.limits.bytes/16 {
			return
		}
	default:
		return
	}
	at.Store(r.remake(c, oldest, len(c.slots)-int(dead)))
}

// clear drops everything: history begins with the next event.
func (r *ring[T]) clear() {
	r.oldest.Store(r.tail)
	r.commit = r.tail
	r.bytes.Store(0)
	r.replace(newWindow[T](4))
}

// after returns the first event that history has beyond a position of its own
// numbering. The caller must be the writer, or hold the cache's lock.
func (r *ring[T]) after(p Position) uint64 {
	oldest, head := r.oldest.Load(), r.head.Load()
	return oldest + uint64(sort.Search(int(head-oldest), func(n int) bool {
		c, i := r.find(oldest + uint64(n))
		return p.compare(c.slots[i].Revision, c.part(i)) < 0
	}))
}

// len returns how many events history has.
func (r *ring[T]) len() int { return int(r.head.Load() - r.oldest.Load()) }

// check verifies what must hold between turns.
func (r *ring[T]) check() {
	oldest, head := r.oldest.Load(), r.head.Load()
	invariant.Check(oldest <= head && head <= r.tail, "oldest %d, head %d, tail %d", oldest, head, r.tail)
	var weight int64
	for seq := oldest; seq < r.tail; seq++ {
		c, i := r.find(seq)
		invariant.Check(c != nil, "event %d of [%d, %d) is missing", seq, oldest, r.tail)
		if r.columns.weight {
			weight += c.weights[i]
		}
	}
	invariant.Check(weight == r.bytes.Load(), "history weighs %d, counted %d", weight, r.bytes.Load())
}

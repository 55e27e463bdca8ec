package watchcache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// thing is the object of the model tests. Serial differs in every put, so that
// no two events look alike.
type thing struct {
	Color  string
	Loud   bool
	Serial int
}

func (x thing) String() string { return fmt.Sprintf("%s%d%v", x.Color, x.Serial, x.Loud) }

// size is the test's Options.Size.
func (x thing) size() int64 { return 1 + int64(x.Serial%7) }

// indexes are the test's Options.Indexes: one with a value or none, and one with
// several, some of them twice.
var indexes = map[string]func(thing) []string{
	"color": func(x thing) []string {
		if x.Color == "" {
			return nil
		}
		return []string{x.Color}
	},
	"trait": func(x thing) []string {
		if x.Loud {
			return []string{"loud", x.Color, "loud"}
		}
		return []string{"any"}
	},
}

// settings are what the model must know of a cache's Options.
type settings struct {
	mirror       bool
	capacity     int
	retention    time.Duration
	keep         int
	maxBytes     int64
	indexed      bool
	expire       bool // RelistExpire
	identity     bool // SameIdentity is set: things of another color are other things
	relists      bool // there are relists
	sourceTimes  bool // commits bring times of their own
	maxWatchers  int
	defaultStall stallRule
}

// model is what a cache must be, written to be read: every commit is kept, whole,
// with the full state after it, and everything else is looked up there.
type model struct {
	settings
	epoch       string
	sourceEpoch string
	head        Position
	oldest      Position
	commits     []pastCommit // commits[0] makes no event: it is the state that history begins with
	first       int          // of the commits that history has
	holes       []pastHole
	ready       bool
	watchers    []*modelWatcher
	ended       Endings
	delivered   uint64
}

// pastCommit is one commit and the state after it.
type pastCommit struct {
	at      Position
	time    time.Time // of its events
	made    time.Time // by the clock: its age counts from here
	changes []pastChange
	state   map[string]Item[thing]
}

// pastChange is one event of a commit; nil means that the key is not there.
type pastChange struct {
	key           string
	before, after *thing
}

// pastHole is what a relist left unknown: the positions strictly between.
type pastHole struct{ after, upTo Position }

func newModel(s settings, epoch string) *model {
	start := Position{Epoch: epoch}
	return &model{
		settings: s, ready: !s.mirror, epoch: epoch, sourceEpoch: epoch, head: start, oldest: start,
		commits: []pastCommit{{at: start, state: map[string]Item[thing]{}}}, first: 1,
	}
}

// before reports whether p comes before q in their common epoch.
func before(p, q Position) bool {
	return cmp.Or(cmp.Compare(p.Revision, q.Revision), cmp.Compare(p.Part, q.Part)) < 0
}

func (m *model) state() map[string]Item[thing] { return m.commits[len(m.commits)-1].state }

// apply makes changes the newest commit.
func (m *model) apply(at Position, changes []Change[thing], sourceTime, now time.Time) {
	c := pastCommit{at: at, time: sourceTime, made: now, state: maps.Clone(m.state())}
	if sourceTime.IsZero() {
		c.time = now
	}
	for _, ch := range changes {
		c.change(ch, at.Revision)
	}
	m.append(c, now)
}

// change adds one change to a commit; deleting a key that is not there is none.
func (c *pastCommit) change(ch Change[thing], revision uint64) {
	var change pastChange
	if old, ok := c.state[ch.Key]; ok {
		change.before = &old.Object
	}
	if ch.Delete {
		delete(c.state, ch.Key)
	} else {
		change.after = &ch.Object
		c.state[ch.Key] = Item[thing]{ch.Key, ch.Object, revision}
	}
	if change.key = ch.Key; change.before != nil || change.after != nil {
		c.changes = append(c.changes, change)
	}
}

func (m *model) append(c pastCommit, now time.Time) {
	m.commits = append(m.commits, c)
	m.head = c.at
	m.drop(now)
	for _, w := range m.watchers {
		w.lagging(c, now)
	}
}

// progress moves the head, with no commit.
func (m *model) progress(revision uint64) {
	if revision > m.head.Revision {
		m.head = Position{Epoch: m.epoch, Revision: revision}
	}
}

// relist makes a listing the state. Should it begin a new epoch, that is called
// named: a cache makes the name up when positions are given out again.
func (m *model) relist(at Position, items []Item[thing], named string, now time.Time) {
	if at.Epoch == "" || at.Epoch == m.epoch {
		at.Epoch = m.sourceEpoch
	}
	if at.Revision == 0 && !m.mirror && at.Epoch == m.sourceEpoch {
		at.Revision = m.head.Revision + 1
	}
	listing := map[string]Item[thing]{}
	for _, item := range items {
		listing[item.Key] = item
	}
	foreign := at.Epoch != m.sourceEpoch
	further := m.ready && !foreign && before(m.head, at)
	atHead := m.ready && !foreign && at.Revision == m.head.Revision
	sourceEpoch := at.Epoch
	at.Epoch = m.epoch
	c := m.difference(at, listing, now)
	switch {
	case atHead && !further && len(c.changes) == 0:
	case further && !m.expire && !(atHead && len(c.changes) > 0):
		hole := pastHole{m.head, at}
		for _, w := range m.watchers {
			if w.future && before(m.head, w.start) && before(w.start, at) {
				w.expire(m.oldest, now) // nobody knows what it has missed
			}
		}
		m.holes = append(m.holes, hole)
		m.append(c, now)
	default:
		if !further {
			m.sourceEpoch, at.Epoch = sourceEpoch, named
		}
		m.renew(at, listing, now)
	}
}

// difference is the commit that turns the state into a listing: puts in order of
// the items' revisions, then deletions.
func (m *model) difference(at Position, listing map[string]Item[thing], now time.Time) pastCommit {
	c := pastCommit{at: at, time: now, made: now, state: maps.Clone(m.state())}
	revision := func(item Item[thing]) uint64 { return cmp.Or(item.Revision, at.Revision) }
	order := slices.SortedFunc(maps.Values(listing), func(a, b Item[thing]) int {
		return cmp.Or(cmp.Compare(revision(a), revision(b)), cmp.Compare(a.Key, b.Key))
	})
	for _, item := range order {
		old, known := c.state[item.Key]
		if known && old.Object == item.Object {
			old.Revision = cmp.Or(item.Revision, old.Revision)
			c.state[item.Key] = old
			continue
		}
		if known && m.identity && old.Object.Color != item.Object.Color {
			c.change(Change[thing]{Key: item.Key, Delete: true}, 0)
		}
		c.change(Change[thing]{Key: item.Key, Object: item.Object}, revision(item))
	}
	for _, key := range slices.Sorted(maps.Keys(c.state)) {
		if _, ok := listing[key]; !ok {
			c.change(Change[thing]{Key: key, Delete: true}, 0)
		}
	}
	return c
}

// renew starts anew: nothing that was known before can be resumed, and whoever
// watched is told so.
func (m *model) renew(at Position, listing map[string]Item[thing], now time.Time) {
	for _, w := range m.watchers {
		w.expire(at, now)
	}
	for key, item := range listing {
		item.Revision = cmp.Or(item.Revision, at.Revision)
		listing[key] = item
	}
	m.ready, m.epoch = true, at.Epoch
	m.head, m.oldest, m.holes = at, at, nil
	m.commits = []pastCommit{{at: at, state: listing}}
	m.first = 1
}

// newest returns the newest commit with an event: that one is never dropped.
func (m *model) newest() int {
	n := len(m.commits) - 1
	for n > 0 && len(m.commits[n].changes) == 0 {
		n--
	}
	return n
}

// history returns how many events history has, and their bytes.
func (m *model) history() (events int, bytes int64) {
	for _, c := range m.commits[m.first:] {
		for _, ch := range c.changes {
			events++
			var most int64
			for _, x := range []*thing{ch.before, ch.after} {
				if x != nil {
					most = max(most, x.size())
				}
			}
			bytes += most
		}
	}
	return events, bytes
}

// drop drops what exceeds the limits, whole commits, and judges the watchers that
// still need them.
func (m *model) drop(now time.Time) {
	from := m.first
	for m.first < m.newest() {
		c := m.commits[m.first]
		events, bytes := m.history()
		many := events > m.capacity
		big := m.maxBytes > 0 && bytes > m.maxBytes
		old := m.retention > 0 && now.Sub(c.made) >= m.retention && events-len(c.changes) >= m.keep
		if len(c.changes) > 0 {
			if !many && !big && !old {
				break
			}
			m.raise(c.at)
		}
		m.first++
	}
	if m.first > from {
		m.overrun(now)
	}
}

// ages returns when the next commit is old enough to be dropped.
func (m *model) ages() (time.Time, bool) {
	events, _ := m.history()
	for n := m.first; n < m.newest() && m.retention > 0; n++ {
		if c := m.commits[n]; len(c.changes) > 0 {
			return c.made.Add(m.retention), events-len(c.changes) >= m.keep
		}
	}
	return time.Time{}, false
}

// trim raises oldest by hand, to the end of a hole if it lies in one.
func (m *model) trim(p Position, now time.Time) {
	if !before(m.oldest, p) {
		return
	}
	if hole, in := m.hole(p); in {
		p = hole.upTo
	}
	m.raise(p)
	for m.first < len(m.commits) && !before(p, m.commits[m.first].at) {
		m.first++
	}
	m.overrun(now)
}

func (m *model) raise(oldest Position) {
	m.oldest = oldest
	m.holes = slices.DeleteFunc(m.holes, func(h pastHole) bool { return !before(oldest, h.upTo) })
}

func (m *model) hole(p Position) (pastHole, bool) {
	for _, h := range m.holes {
		if before(h.after, p) && before(p, h.upTo) {
			return h, true
		}
	}
	return pastHole{}, false
}

func (m *model) overrun(now time.Time) {
	for _, w := range m.watchers {
		if !w.streams() || !w.overrun() {
			continue
		}
		if w.lacksNothing() {
			w.end(w.draining, now)
		} else {
			w.judge(true, now)
		}
	}
}

// resumable returns what Watch and Since must say to a position; nil: go on.
func (m *model) resumable(p Position) error {
	_, in := m.hole(p)
	switch {
	case p.Epoch != m.epoch, before(p, m.oldest):
		return ErrExpired
	case before(m.head, p):
		return ErrFuture
	case in:
		return ErrExpired
	}
	return nil
}

// reaches is resumable for a whole revision, with all of its parts.
func (m *model) reaches(revision uint64) error {
	switch {
	case revision < m.oldest.Revision:
		return ErrExpired
	case revision > m.head.Revision:
		return ErrFuture
	}
	for _, h := range m.holes {
		if h.after.Revision < revision && revision < h.upTo.Revision {
			return ErrExpired
		}
	}
	return nil
}

// after returns the first commit after a position.
func (m *model) after(p Position) int {
	n := 1
	for n < len(m.commits) && !before(p, m.commits[n].at) {
		n++
	}
	return n
}

// stateAt returns the state at a revision, with all of its parts.
func (m *model) stateAt(revision uint64) map[string]Item[thing] {
	state := m.commits[0].state
	for _, c := range m.commits {
		if c.at.Revision <= revision {
			state = c.state
		}
	}
	return state
}

// selection is what a watcher selects.
type selection struct {
	key, prefix, from, to string
	index                 IndexValue
	loud                  bool // by a Filter
}

// options are the WatchOptions that say the same.
func (s selection) options() WatchOptions[thing] {
	opts := WatchOptions[thing]{Key: s.key, Prefix: s.prefix, From: s.from, To: s.to, Index: s.index}
	if s.loud {
		opts.Filter = func(_ string, x thing) bool { return x.Loud }
	}
	return opts
}

// considers reports whether all but the Filter selects an object.
func (s selection) considers(key string, x *thing) bool {
	return x != nil && (s.key == "" || key == s.key) && strings.HasPrefix(key, s.prefix) &&
		s.from <= key && (s.to == "" || key < s.to) &&
		(s.index.Name == "" || slices.Contains(indexes[s.index.Name](*x), s.index.Value))
}

func (s selection) selects(key string, x *thing) bool {
	return s.considers(key, x) && (!s.loud || x.Loud)
}

// touches reports whether all but the Filter selects a change: such changes are
// what a watcher lags behind.
func (s selection) touches(ch pastChange) bool {
	return s.considers(ch.key, ch.before) || s.considers(ch.key, ch.after)
}

// event is a change as a watcher sees it; false: it does not.
func (s selection) event(ch pastChange) (Event[thing], bool) {
	was, is := s.selects(ch.key, ch.before), s.selects(ch.key, ch.after)
	ev := Event[thing]{Key: ch.key}
	switch {
	case was && is:
		ev.Type, ev.Object, ev.Prev = Modified, *ch.after, *ch.before
	case is:
		ev.Type, ev.Object = Added, *ch.after
	case was && ch.after == nil:
		ev.Type, ev.Cause, ev.Object, ev.Prev = Deleted, Removed, *ch.before, *ch.before
	case was:
		ev.Type, ev.Cause, ev.Object, ev.Prev = Deleted, LeftFilter, *ch.after, *ch.before
	}
	return ev, was || is
}

// events are a commit as a watcher sees it, and which of its changes they are.
func (s selection) events(c pastCommit) (events []Event[thing], changes []int) {
	for i, ch := range c.changes {
		if ev, ok := s.event(ch); ok {
			ev.Revision, ev.Time = c.at.Revision, c.time
			events, changes = append(events, ev), append(changes, i)
		}
	}
	for i := range events {
		events[i].More = i < len(events)-1
	}
	return events, changes
}

// items are the selected items of a state, by key.
func (s selection) items(state map[string]Item[thing]) (items []Item[thing]) {
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if item := state[key]; s.selects(key, &item.Object) {
			items = append(items, item)
		}
	}
	return items
}

// initial are the events of an initial phase, with Synced.
func (s selection) initial(state map[string]Item[thing], revision uint64) (events []Event[thing]) {
	for _, item := range s.items(state) {
		events = append(events, Event[thing]{Type: Added, Key: item.Key, Object: item.Object, Revision: item.Revision, Initial: true})
	}
	return append(events, Event[thing]{Type: Synced, Revision: revision})
}

package watchcachetest

import (
	"slices"

	"github.com/watchcache/watchcache"
)

// pending is what a coalescing watcher has before it of one key: a deletion, then
// a put; either may be missing.
type pending[T any] struct {
	deletion, put *numbered[T]
}

// numbered is an event with its place among all.
type numbered[T any] struct {
	place int
	event watchcache.Event[T]
}

// joining is a run of commits joined by key, as WatchOptions.Coalesce promises.
type joining[T any] struct {
	keys  map[string]*pending[T]
	count int
}

func (j *joining[T]) add(events []watchcache.Event[T]) {
	for _, ev := range events {
		p := j.keys[ev.Key]
		if p == nil {
			p = new(pending[T])
			j.keys[ev.Key] = p
		}
		j.count++
		n := &numbered[T]{j.count, ev}
		switch {
		case ev.Type == watchcache.Deleted && (p.put == nil || p.put.event.Type == watchcache.Modified):
			p.put, p.deletion = nil, n
		case ev.Type == watchcache.Deleted: // came and went
			p.put = nil
		case p.put == nil:
			p.put = n
		default: // the newest object, with what the watcher knows as the state before
			n.event.Type, n.event.Prev = p.put.event.Type, p.put.event.Prev
			p.put = n
		}
	}
}

// events returns the result, in order of the newest changes.
func (j *joining[T]) events() []watchcache.Event[T] {
	var all []*numbered[T]
	for _, p := range j.keys {
		if p.deletion != nil {
			all = append(all, p.deletion)
		}
		if p.put != nil {
			all = append(all, p.put)
		}
	}
	slices.SortFunc(all, func(a, b *numbered[T]) int { return a.place - b.place })
	var events []watchcache.Event[T]
	for i, n := range all {
		n.event.More = i < len(all)-1
		events = append(events, n.event)
	}
	return events
}

// joined is an event of a coalescing watcher. When no more are to follow, the
// window must be what the commits up to some place come to.
func (r *replay[T]) joined(ev watchcache.Event[T], wrong wrongFunc) *Violation {
	if ev.Revision > r.era.head.Revision {
		v := wrong(1, "an event that nobody wrote", r.timeline.reach())
		v.heals = true
		return v
	}
	window := append(r.window, ev)
	if ev.More {
		r.window = window
		return nil
	}
	var first *Violation
	var nexts []int
	for _, from := range r.starts() {
		j := joining[T]{keys: make(map[string]*pending[T])}
		for n := from; n < len(r.era.commits); n++ {
			w := r.era.commits[n]
			j.add(w.seen(r.selects))
			if w.at.Revision < ev.Revision {
				continue
			}
			expected, got := r.compareWindow(j.events(), window)
			if expected == "" {
				nexts = append(nexts, n+1)
			} else if first == nil {
				first = wrong(1, "it is not the changes after "+r.low.String()+" joined by key", expected)
				first.Got = got
			}
		}
	}
	if len(nexts) > 0 {
		slices.Sort(nexts)
		r.nexts, r.window = slices.Compact(nexts), nil
		r.next = r.nexts[0]
		r.low = r.era.commits[r.next-1].at
		return nil
	}
	if first == nil {
		first = wrong(1, "an event at or before "+r.low.String(), r.expectation())
	}
	return first
}

// starts returns the commits that may be the first not taken: events that join
// to the same may come from fewer commits or from more.
func (r *replay[T]) starts() []int {
	if len(r.nexts) == 0 {
		return []int{r.next}
	}
	return r.nexts
}

func (r *replay[T]) compareWindow(want, got []watchcache.Event[T]) (expected, have string) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			return "no further event", describe(got[i])
		case i >= len(got):
			return describe(want[i]), "no further event"
		}
		if field, a, b := r.differs(want[i], got[i]); field != "" {
			return describe(want[i]) + ": " + field + " " + a, describe(got[i]) + ": " + field + " " + b
		}
	}
	return "", ""
}

// unjoined is untaken for a coalescing watcher.
func (r *replay[T]) unjoined(at watchcache.Position) (string, bool) {
	if len(r.window) > 0 && before(r.low, at) {
		return "the last of the joined events", true
	}
	first := ""
	for _, from := range r.starts() {
		events := r.joinedUpTo(from, at)
		if len(events) == 0 {
			return "", false
		}
		if first == "" {
			first = describe(events[0])
		}
	}
	return first, true
}

// joinedUpTo returns what the commits from one on, up to a position, come to.
func (r *replay[T]) joinedUpTo(from int, at watchcache.Position) []watchcache.Event[T] {
	j := joining[T]{keys: make(map[string]*pending[T])}
	for _, w := range r.era.commits[from:] {
		if before(at, w.at) {
			break
		}
		j.add(w.seen(r.selects))
	}
	return j.events()
}

package watchcache

import "slices"

// coalesced is what a coalescing watcher has pending: a window of history, joined
// by key. It has sequence numbers, not objects, so that it pins no history.
type coalesced struct {
	window []joined
	end    uint64 // the window's end in history
}

// joined is one event of a window: the newest of one or more of a key.
type joined struct {
	seq    uint64 // of the change that gives Object
	oldest uint64 // of the change that gives Prev
	kind   kind
}

func (j *coalesced) pending() bool { return len(j.window) > 0 }

// perKey is what a window has of a key so far: a deletion, then a put; either may
// be missing.
type perKey struct {
	deletion, put joined // kind unseen: none
}

// add joins one more change of the key.
func (p *perKey) add(seq uint64, k kind) {
	switch {
	case k == vanishes || k == leaves:
		if p.put.kind == unseen {
			p.deletion = joined{seq, seq, k}
		} else {
			if p.put.kind == stays { // known before the window: what is pending is its deletion
				p.deletion = joined{seq, seq, k}
			}
			p.put = joined{} // and if it was new, the watcher never hears of it
		}
	case p.put.kind == unseen:
		p.put = joined{seq, seq, k}
	default:
		p.put.seq = seq
	}
}

// nextCoalesced finds the next event of the window in hand, or of a new one.
func (w *Watcher[T]) nextCoalesced(ev *Event[T], limit uint64) outcome {
	if !w.coalesced.pending() {
		if out := w.join(limit); out != outcomeFound {
			return out
		}
	}
	window := w.coalesced.window
	next := window[0]
	newest, i := w.c.ring.find(next.seq)
	oldest, k := w.c.ring.find(next.oldest)
	if newest == nil || oldest == nil {
		return outcomeLost
	}
	*ev = newest.slots[i]
	w.taking = taking{cursor: w.coalesced.end}
	if next.kind == stays {
		ev.Type, ev.Prev = Modified, oldest.slots[k].Prev
	}
	more := len(window) > 1
	if !more {
		// The whole window was taken: its last event's commit, and what came
		// after it and vanished again.
		last, at := w.c.ring.find(w.coalesced.end - 1)
		if last == nil {
			return outcomeLost
		}
		w.taking.revision, w.taking.part, w.taking.moves = last.slots[at].Revision, last.part(at), true
	} else {
		w.taking.cursor = w.member.Cursor.Own()
	}
	shape(ev, next.kind, more)
	w.coalesced.window = window[1:]
	if !more {
		w.coalesced.window = nil
	}
	return outcomeFound
}

// join makes a window of everything up to limit.
func (w *Watcher[T]) join(limit uint64) outcome {
	keys := make(map[string]*perKey)
	for {
		seq, ok := w.candidate(w.scan, limit)
		if !ok {
			break
		}
		c, i := w.c.ring.find(seq)
		if c == nil {
			return outcomeLost
		}
		k, failed := w.see(c, i)
		if failed {
			return outcomeLost
		}
		w.scan = seq + 1
		if k == unseen {
			continue
		}
		key := c.slots[i].Key
		if keys[key] == nil {
			keys[key] = new(perKey)
		}
		keys[key].add(seq, k)
	}
	var window []joined
	for _, p := range keys {
		for _, j := range [...]joined{p.deletion, p.put} {
			if j.kind != unseen {
				window = append(window, j)
			}
		}
	}
	if w.group.All() {
		w.scan = max(w.scan, limit)
	}
	if len(window) == 0 {
		w.passed()
		return outcomeNone
	}
	slices.SortFunc(window, func(a, b joined) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	*w.coalesced = coalesced{window: window, end: w.scan}
	return outcomeFound
}

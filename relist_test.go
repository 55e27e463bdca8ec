package watchcache

// Relists and the parts of a revision.

import (
	"context"
	"errors"
	"iter"
	"math"
	"testing"
)

// A source that shows another state at a position that was given out has numbered
// anew; one that is at a later part of the head's revision has not.
func TestRelistsAtTheHeadsRevision(t *testing.T) {
	at := func(part uint32) Position { return Position{Epoch: "e", Revision: 5, Part: part} }
	list := func(v int) func(func(Item[int], error) bool) {
		return func(yield func(Item[int], error) bool) { yield(Item[int]{Key: "a", Object: v}, nil) }
	}
	for _, row := range []struct {
		name           string
		part           uint32
		object         int
		anew, expired  bool
		before, beyond error // of resuming after the head that was, and at a part between
	}{
		{"the same", 2, 1, false, false, nil, ErrFuture},
		{"a later part, no difference", 4, 1, false, false, nil, ErrExpired},
		{"a later part", 4, 2, false, true, ErrExpired, ErrExpired},
		{"the same part, a difference", 2, 2, true, true, ErrEpoch, ErrEpoch},
		{"an earlier part, no difference", 1, 1, false, false, nil, ErrFuture},
		{"an earlier part", 1, 2, true, true, ErrEpoch, ErrEpoch},
		{"the last part", math.MaxUint32, 2, false, true, ErrExpired, ErrExpired},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, _ := New(Options[int]{Mirror: true, Epoch: "e"})
			defer c.Close()
			c.Replace(at(2), list(1))
			was := c.Position()
			w, _ := c.Watch(context.Background(), WatchOptions[int]{Start: FromNow()})
			if err := c.Replace(at(row.part), list(row.object)); err != nil {
				t.Fatal(err)
			}
			want := at(max(row.part, 2))
			if row.anew {
				want = at(row.part)
				want.Epoch = c.Position().Epoch
			}
			if c.Position() != want || row.anew == (c.Position().Epoch == "e") {
				t.Errorf("now at %v; want %v, of an epoch of its own: %v", c.Position(), want, row.anew)
			}
			if row.expired != errors.Is(w.Err(), ErrExpired) {
				t.Errorf("who watched ended with %v", w.Err())
			}
			between := was
			between.Part++
			for p, want := range map[Position]error{was: row.before, between: row.beyond} {
				if _, err := c.Watch(context.Background(), WatchOptions[int]{Start: After(p)}); !errors.Is(err, want) {
					t.Errorf("resuming after %v: %v, want %v", p, err, want)
				}
			}
		})
	}
}

// What a revision ends at is one thing for SnapshotAt and Since, whether the head
// has moved on or not, and whether the revision came by parts or by a relist.
func TestARevisionThatCameInParts(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true, Epoch: "e"})
	defer c.Close()
	at := func(revision uint64, part uint32) Position { return Position{"e", revision, part} }
	put := func(revision uint64, continues bool, v int) {
		t.Helper()
		if _, err := c.Apply(Commit[int]{Revision: revision, Continues: continues, Changes: []Change[int]{{Key: "a", Object: v}}}); err != nil {
			t.Fatal(err)
		}
	}
	looks := func(revision uint64, end Position, object, since int) {
		t.Helper()
		s, err := c.SnapshotAt(revision)
		if err != nil || s.Position() != end {
			t.Fatalf("SnapshotAt(%d) is at %v (%v), want %v", revision, s.Position(), err, end)
		}
		if item, _ := s.Get("a"); item.Object != object {
			t.Errorf("SnapshotAt(%d) has a=%d, want %d", revision, item.Object, object)
		}
		i, err := c.Since(revision)
		if err != nil || i.Len() != since {
			t.Errorf("Since(%d) has %d events (%v), want %d", revision, i.Len(), err, since)
		}
	}
	c.Replace(at(5, 0), func(yield func(Item[int], error) bool) { yield(Item[int]{Key: "a", Object: 1}, nil) })
	put(5, true, 2)
	put(5, true, 3)
	looks(5, at(5, 2), 3, 0)
	c.Replace(at(10, 2), func(yield func(Item[int], error) bool) { yield(Item[int]{Key: "a", Object: 4}, nil) })
	looks(10, at(10, 2), 4, 0)
	put(11, false, 5)
	looks(5, at(5, 2), 3, 2)
	looks(10, at(10, 2), 4, 1)
	for _, refused := range []uint64{6, 9} {
		if _, err := c.SnapshotAt(refused); !errors.Is(err, ErrExpired) {
			t.Errorf("SnapshotAt(%d), in the hole: %v", refused, err)
		}
	}
}

// A relist to a part of a revision leaves the parts before it in the hole.
func TestHoleThatEndsAtAPart(t *testing.T) {
	c, _ := New(Options[int]{Mirror: true, Epoch: "e"})
	defer c.Close()
	at := func(revision uint64, part uint32) Position {
		return Position{Epoch: "e", Revision: revision, Part: part}
	}
	list := func(n int) iter.Seq2[Item[int], error] {
		return func(yield func(Item[int], error) bool) { yield(Item[int]{Key: "a", Object: n}, nil) }
	}
	c.Replace(at(1, 0), list(1))
	ahead, _ := c.Watch(context.Background(), WatchOptions[int]{Start: After(at(5, 1)).AllowFuture()})
	c.Replace(at(5, 2), list(2))
	if err := ahead.Err(); !errors.Is(err, ErrExpired) {
		t.Errorf("who was ahead at e:5.1: %v, want ErrExpired", err)
	}
	watch := func(p Position) error {
		w, err := c.Watch(context.Background(), WatchOptions[int]{Start: After(p)})
		if err == nil {
			w.Stop()
		}
		return err
	}
	for _, p := range []Position{at(1, 1), at(3, 0), at(5, 0), at(5, 1)} {
		if err := watch(p); !errors.Is(err, ErrExpired) {
			t.Errorf("after %v: %v, want ErrExpired", p, err)
		}
	}
	for _, p := range []Position{at(1, 0), at(5, 2)} {
		if err := watch(p); err != nil {
			t.Errorf("after %v: %v, want a watcher", p, err)
		}
	}
	if c.Trim(at(5, 1)); c.Oldest() != at(5, 2) {
		t.Errorf("trimmed to e:5.1 the oldest is %v, want the hole's end e:5.2", c.Oldest())
	}
}

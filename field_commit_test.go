package watchcache_test

import (
	"strings"
	"testing"

	"github.com/watchcache/watchcache"
)

// Section B: several events at one revision.

func TestFieldB1B4ACommitComesAgainWhole(t *testing.T) {
	c := mirror(t, options{}, 4, "")
	w := mustWatch(t, c, watch{})
	wantPending(t, w, "synced@4")
	apply(t, c, 5, "a=1 b=2 c=3")
	if ev, _, _ := w.TryNext(); show(ev) != "+a=1@5…" {
		t.Fatalf("took %s", show(ev))
	}
	p, _ := w.Position()
	if p != at(4) {
		t.Errorf("position %v after one event of three, want 4", p)
	}
	wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(p)}), "+a=1@5… +b=2@5… +c=3@5")
	wantPending(t, w, "+b=2@5… +c=3@5")
	if p, _ := w.Position(); p != at(5) {
		t.Errorf("position %v after the whole commit, want 5", p)
	}
}

func TestFieldB2BatchesAreWholeCommits(t *testing.T) {
	c := mirror(t, options{}, 6, "")
	apply(t, c, 7, "a=1 b=2")
	apply(t, c, 8, "c=3")
	w := mustWatch(t, c, watch{Start: watchcache.After(at(6))})
	var got []string
	for batch, err := range w.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range batch.Events {
			got = append(got, show(ev))
		}
		got = append(got, "|")
		if batch.Revision == 8 {
			break
		}
	}
	if s := strings.Join(got, " "); s != "+a=1@7… +b=2@7 | +c=3@8 |" {
		t.Errorf("batches were %s", s)
	}
}

func TestFieldB3HistoryNeverKeepsHalfACommit(t *testing.T) {
	c := mirror(t, options{Capacity: 4}, 6, "")
	apply(t, c, 7, "a=1 b=1 c=1")
	apply(t, c, 8, "d=1 e=1") // five events: one too many, so that three go
	if c.Oldest() != at(7) || c.Stats().History != 2 {
		t.Errorf("oldest %v with %d events, want 7 with 2", c.Oldest(), c.Stats().History)
	}
	wantRefused(t, c, watch{Start: watchcache.After(at(6))}, watchcache.ErrExpired)
}

func TestFieldB6ACommitAboveTheLimitGoesThroughWhole(t *testing.T) {
	c := mirror(t, options{Capacity: 2, MaxBytes: 10, Size: func(string, int) int { return 8 }}, 1, "")
	w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
	apply(t, c, 2, "a=1 b=1 c=1 d=1")
	wantPending(t, w, "+a=1@2… +b=1@2… +c=1@2… +d=1@2")
	if s := c.Stats(); s.History != 4 || s.Oldest != at(1) {
		t.Errorf("history has %d events from %v, want the whole newest commit", s.History, s.Oldest)
	}
}

func TestFieldB2B3APartOfARevisionIsAPlaceToResume(t *testing.T) {
	c := mirror(t, options{}, 6, "")
	apply(t, c, 7, "k1=1")
	if _, err := c.Apply(commit{Revision: 7, Continues: true, Changes: []change{{Key: "k2", Object: 2}}}); err != nil {
		t.Fatal(err)
	}
	apply(t, c, 8, "k3=3")
	w := mustWatch(t, c, watch{Start: watchcache.After(at(6))})
	for _, step := range []struct {
		event    string
		position watchcache.Position
		rest     string
	}{
		{"+k1=1@7", at(7), "+k2=2@7 +k3=3@8"},
		{"+k2=2@7", watchcache.Position{Epoch: "e", Revision: 7, Part: 1}, "+k3=3@8"},
		{"+k3=3@8", at(8), ""},
	} {
		ev, _, _ := w.TryNext()
		if p, _ := w.Position(); show(ev) != step.event || p != step.position {
			t.Errorf("took %s to %v, want %s to %v", show(ev), p, step.event, step.position)
		}
		wantPending(t, mustWatch(t, c, watch{Start: watchcache.After(step.position)}), step.rest)
	}
}

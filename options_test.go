package watchcache_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/watchcache/watchcache"
)

func TestBadOptionsAreRefusedByName(t *testing.T) {
	limits := func(l watchcache.StallLimits) watchcache.StallPolicy { return watchcache.StallFunc(l, nil) }
	for field, bad := range map[string][]options{
		"FirstRevision": {{Mirror: true, FirstRevision: 1}},
		"Capacity":      {{Capacity: -1}, {Capacity: 1<<30 + 1}},
		"Retention":     {{Retention: -1}},
		"Keep":          {{Keep: -1}, {Keep: 1}, {Keep: 5, Capacity: 4, Retention: 1}},
		"MaxBytes":      {{MaxBytes: -1}, {MaxBytes: 1}},
		"Relist":        {{Relist: 9}},
		"MaxWatchers":   {{MaxWatchers: -1}},
		"Indexes":       {{Indexes: map[string]func(string, int) []string{"x": nil}}, {Indexes: map[string]func(string, int) []string{"": func(string, int) []string { return nil }}}},
		"Stall":         {{Stall: limits(watchcache.StallLimits{InitialIdle: -1})}, {Stall: limits(watchcache.StallLimits{StreamIdle: -1})}, {Stall: limits(watchcache.StallLimits{Lag: -1})}},
	} {
		for i, o := range bad {
			_, err := watchcache.New(o)
			var option *watchcache.OptionError
			if !errors.Is(err, watchcache.ErrInvalidOption) || !errors.As(err, &option) || option.Field != "Options."+field {
				t.Errorf("Options.%s, case %d: %v, want ErrInvalidOption with its name", field, i, err)
			}
		}
	}
	c := newCache(t, options{})
	for field, bad := range map[string][]watch{
		"Prefix":       {{Key: "a", Prefix: "a"}},
		"From":         {{Key: "a", From: "a"}, {Prefix: "a", To: "b"}},
		"To":           {{From: "b", To: "a"}, {From: "a", To: "a"}},
		"Index":        {{Index: watchcache.IndexValue{Value: "x"}}, {Index: watchcache.IndexValue{Name: "unknown"}}},
		"AtLeastWait":  {{AtLeastWait: -1}},
		"Bookmarks":    {{Bookmarks: -1}},
		"DeadlineLead": {{DeadlineLead: -1}, {DeadlineLead: 1}},
		"Start":        {{Start: watchcache.FromNow().AllowFuture()}, {Start: watchcache.FromState().AllowFuture()}},
		"Stall":        {{Stall: limits(watchcache.StallLimits{Lag: -1})}},
	} {
		for i, o := range bad {
			_, err := c.Watch(context.Background(), o)
			var option *watchcache.OptionError
			if !errors.As(err, &option) || option.Field != "WatchOptions."+field {
				t.Errorf("WatchOptions.%s, case %d: %v, want ErrInvalidOption with its name", field, i, err)
			}
		}
	}
	if got := c.Stats().Watchers; got != 0 {
		t.Errorf("%d watchers after refusals", got)
	}
}

func TestOptionMirror(t *testing.T) {
	c := newCache(t, options{Mirror: true})
	if _, err := c.Put("a", 1); !errors.Is(err, watchcache.ErrInvalidOption) {
		t.Errorf("Put: %v", err)
	}
	if _, err := c.Delete("a"); !errors.Is(err, watchcache.ErrInvalidOption) {
		t.Errorf("Delete: %v", err)
	}
	_, err := c.Apply(commit{Revision: 5})
	_, errAt := c.SnapshotAt(0)
	_, errSince := c.Since(0)
	for what, err := range map[string]error{"Apply": err, "Progress": c.Progress(5), "Trim": c.Trim(c.Position()), "SnapshotAt": errAt, "Since": errSince} {
		if !errors.Is(err, watchcache.ErrNotReady) {
			t.Errorf("%s before the first Replace: %v, want ErrNotReady", what, err)
		}
	}
	if err := newCache(t, options{}).Run(context.Background(), nil); !errors.Is(err, watchcache.ErrInvalidOption) {
		t.Errorf("Run without Mirror: %v", err)
	}
	if newCache(t, options{}).WaitReady(context.Background()) != nil {
		t.Error("without Mirror a cache is born ready")
	}
}

func TestOptionEpochAndFirstRevision(t *testing.T) {
	if a, b := newCache(t, options{}), newCache(t, options{}); a.Position().Epoch == b.Position().Epoch {
		t.Error("two caches have one epoch")
	}
	c := newCache(t, options{Epoch: "named", FirstRevision: 100})
	if c.Position() != (watchcache.Position{Epoch: "named", Revision: 99}) || c.Oldest() != c.Position() {
		t.Errorf("born at %v, oldest %v, want named:99", c.Position(), c.Oldest())
	}
	if revision, err := c.Put("a", 1); revision != 100 || err != nil {
		t.Errorf("the first revision is %d (%v), want 100", revision, err)
	}
	if revision, _ := newCache(t, options{}).Put("a", 1); revision != 1 {
		t.Errorf("the default first revision is %d, want 1", revision)
	}
}

func TestOptionCapacityDefault(t *testing.T) {
	c := newCache(t, options{})
	for range 20_000 {
		c.Put("a", 1)
	}
	if got := c.Stats().History; got != 16384 {
		t.Errorf("history has %d events by default, want 16384", got)
	}
}

func TestOptionRetentionAndKeepDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Retention: time.Minute})
		for range 300 {
			c.Put("a", 1)
		}
		time.Sleep(time.Minute - 1)
		if got := c.Stats().History; got != 300 {
			t.Errorf("%d events before their time, want 300", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := c.Stats().History; got != 128 {
			t.Errorf("%d events after their time, want the default Keep of 128", got)
		}
		c.Close()
	})
}

func TestOptionMaxBytesAndSize(t *testing.T) {
	c := newCache(t, options{MaxBytes: 1000, Size: func(_ string, n int) int { return n }})
	for range 50 {
		c.Put("a", 100)
		if s := c.Stats(); s.HistoryBytes > 1000 || s.HistoryBytes != int64(100*s.History) {
			t.Fatalf("history weighs %d with %d events", s.HistoryBytes, s.History)
		}
	}
	if got := c.Stats().History; got != 10 {
		t.Errorf("history has %d events, want ten", got)
	}
	c.Put("a", 1)
	if got := c.Stats().HistoryBytes; got != 1000 {
		t.Errorf("history weighs %d, want the replaced object counted", got)
	}
}

func TestOptionPublish(t *testing.T) {
	type call struct {
		revision uint64
		object   int
		deleted  bool
		prev     int
	}
	var calls []call
	c := newCache(t, options{Publish: func(revision uint64, ch change, prev int) int {
		calls = append(calls, call{revision, ch.Object, ch.Delete, prev})
		return int(revision)*1000 + ch.Object
	}})
	w := mustWatch(t, c, watch{})
	wantPending(t, w, "synced@0")
	apply(t, c, 0, "a=1 a=2 -b")
	apply(t, c, 0, "-a")
	wantPending(t, w, "+a=1001@1… ~a=1002@1 -a=3002@2")
	want := []call{{1, 1, false, 0}, {1, 2, false, 1001}, {2, 1002, true, 1002}}
	if len(calls) != 3 || calls[0] != want[0] || calls[1] != want[1] || calls[2] != want[2] {
		t.Errorf("called with %v, want %v", calls, want)
	}
}

func TestOptionsOfRelists(t *testing.T) {
	t.Run("Equal", func(t *testing.T) {
		c := mirror(t, options{Equal: func(a, b int) bool { return a/10 == b/10 }}, 1, "a=10 b=10")
		w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		c.Replace(at(2), listing("a=11 b=20"))
		wantPending(t, w, "~b=20@2")
	})
	t.Run("SameIdentity", func(t *testing.T) {
		c := mirror(t, options{SameIdentity: func(a, b int) bool { return a%2 == b%2 }}, 1, "a=1 b=1")
		w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		c.Replace(at(2), listing("a=3 b=2"))
		wantPending(t, w, "~a=3@2… -b=1@2… +b=2@2")
	})
	t.Run("Relist", func(t *testing.T) {
		c := mirror(t, options{Relist: watchcache.RelistExpire}, 1, "a=1")
		w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		c.Replace(at(2), listing("a=2"))
		wantPending(t, w, "!position expired")
	})
}

func TestOptionMaxWatchers(t *testing.T) {
	c := newCache(t, options{MaxWatchers: 2})
	first := mustWatch(t, c, watch{})
	mustWatch(t, c, watch{})
	wantRefused(t, c, watch{}, watchcache.ErrTooManyWatchers)
	first.Stop()
	mustWatch(t, c, watch{})
}

func TestOptionLogger(t *testing.T) {
	var out bytes.Buffer
	c := newCache(t, options{Capacity: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	mustWatch(t, c, watch{Name: "slowpoke", Start: watchcache.FromNow()})
	apply(t, c, 0, "a=1")
	apply(t, c, 0, "a=2")
	if !strings.Contains(out.String(), "slowpoke") {
		t.Errorf("the log does not tell of an eviction: %q", &out)
	}
}

// TestOptionClock: a mock of benbjohnson/clock fits as it is.
func TestOptionClock(t *testing.T) {
	mock := clock.NewMock()
	c := newCache(t, options{Clock: mock, Retention: time.Minute, Keep: 1})
	apply(t, c, 0, "a=1")
	w := mustWatch(t, c, watch{})
	apply(t, c, 0, "a=2")
	if ev, _, _ := w.TryNext(); !ev.Time.Equal(mock.Now()) {
		t.Errorf("an event of %v, the clock says %v", ev.Time, mock.Now())
	}
	for w.Err() == nil { // the watchdog sets its timer when it gets to it
		mock.Add(watchcache.DefaultInitialIdle)
	}
	if !errors.Is(w.Err(), watchcache.ErrStalled) {
		t.Errorf("ended with %v", w.Err())
	}
	for c.Stats().History > 1 {
		mock.Add(time.Minute)
	}
}

func TestWatchOptionsOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{})
		w, err := c.Watch(t.Context(), watch{
			Start: watchcache.FromNow(), Bookmarks: time.Minute, Deadline: time.Now().Add(150 * time.Second), DeadlineLead: 2 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var got []string
		c.Put("a", 1)
		for ev, err := range w.Events() {
			if err != nil {
				got = append(got, time.Since(begin).String()+" "+reason(err))
				break
			}
			got = append(got, time.Since(begin).String()+" "+show(ev))
		}
		want := "0s +a=1@1, 1m0s bookmark@1, 2m0s bookmark@1, 2m28s bookmark@1, 2m30s watch deadline passed"
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("took %s\nwant %s", s, want)
		}
	})
}

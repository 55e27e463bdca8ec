package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// Tests named TestErrors… are of the errors that the methods' comments list: the
// sentinel, the typed error and its fields, and that a refusal harms nobody.

// sameError reports whether an error is what is wanted: if that is a typed error,
// whether its fields are the same and it is its sentinel.
func sameError(err, want error) bool {
	switch want := want.(type) {
	case *watchcache.KeyError:
		got, ok := errors.AsType[*watchcache.KeyError](err)
		return ok && got.Key == want.Key && got.Reason != "" && errors.Is(err, watchcache.ErrInvalidKey)
	case *watchcache.OptionError:
		got, ok := errors.AsType[*watchcache.OptionError](err)
		return ok && got.Field == want.Field && got.Reason != "" && errors.Is(err, watchcache.ErrInvalidOption)
	case *watchcache.RevisionError:
		got, ok := errors.AsType[*watchcache.RevisionError](err)
		return ok && *got == *want && errors.Is(err, watchcache.ErrRevisionOrder)
	case *watchcache.FutureError:
		got, ok := errors.AsType[*watchcache.FutureError](err)
		return ok && *got == *want && errors.Is(err, watchcache.ErrFuture)
	case *watchcache.ExpiredError:
		got, ok := errors.AsType[*watchcache.ExpiredError](err)
		foreign := want.Requested.Epoch != want.Oldest.Epoch
		return ok && *got == *want && errors.Is(err, watchcache.ErrExpired) && errors.Is(err, watchcache.ErrEpoch) == foreign
	case *watchcache.StalledError:
		got, ok := errors.AsType[*watchcache.StalledError](err)
		initial := want.Phase == watchcache.PhaseInitial
		return ok && *got == *want && errors.Is(err, watchcache.ErrStalled) == initial && errors.Is(err, watchcache.ErrLagged) == !initial
	case *watchcache.PanicError:
		got, ok := errors.AsType[*watchcache.PanicError](err)
		if value, isError := want.Value.(error); isError && !errors.Is(err, value) {
			return false
		}
		return ok && got.Callback == want.Callback && got.Value == want.Value && len(got.Stack) > 0 && errors.Is(err, watchcache.ErrCallbackPanic)
	}
	return errors.Is(err, want)
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if err == nil || !sameError(err, want) {
		t.Errorf("%s: %v (%T), want %v (%T)", what, err, err, want, want)
	}
}

// figures are a cache's Stats without the one that changes by itself.
func figures(c *cache) watchcache.Stats {
	s := c.Stats()
	s.SinceProgress = 0
	return s
}

// refused is unchanged for a typed error, and for the figures.
func refused(t *testing.T, c *cache, what string, want error, f func() error) {
	t.Helper()
	unchanged(t, c, nil, func() error {
		t.Helper()
		before := figures(c)
		wantError(t, what, f(), want)
		if now := figures(c); now != before {
			t.Errorf("%s: refused, and yet the figures went from %+v to %+v", what, before, now)
		}
		return nil
	})
}

// writes are the methods that write, to a cache that numbers its commits itself.
// They fail if there is a revision beside an error.
type writes struct {
	t *testing.T
	c *cache
}

func (w writes) noted(revision uint64, err error) error {
	if (err == nil) != (revision > 0) {
		w.t.Errorf("revision %d beside the error %v", revision, err)
	}
	return err
}

func (w writes) put(key string, object int) func() error {
	return func() error { return w.noted(w.c.Put(key, object)) }
}
func (w writes) remove(key string) func() error {
	return func() error { return w.noted(w.c.Delete(key)) }
}
func (w writes) apply(cm commit) func() error { return func() error { return w.noted(w.c.Apply(cm)) } }
func (w writes) replace(p watchcache.Position, items iter.Seq2[item, error]) func() error {
	return func() error { return w.c.Replace(p, items) }
}
func (w writes) progress(revision uint64) func() error {
	return func() error { return w.c.Progress(revision) }
}

// The objects on which the functions that hooks returns panic.
const (
	badSize = 600 + iota
	badIndex
	badPublish
	badRemoval
	badEqual
	badIdentity
)

func hooks(bad any) options {
	on := func(n, object int) {
		if n == object {
			panic(bad)
		}
	}
	return options{Epoch: "e",
		Size:    func(_ string, n int) int { on(n, badSize); return 1 },
		Indexes: map[string]func(string, int) []string{"i": func(_ string, n int) []string { on(n, badIndex); return nil }},
		Publish: func(_ uint64, ch change, _ int) int {
			on(ch.Object, badPublish)
			if ch.Delete {
				on(ch.Object, badRemoval)
			}
			return ch.Object
		},
		Equal:        func(_, n int) bool { on(n, badEqual); return false },
		SameIdentity: func(_, n int) bool { on(n, badIdentity); return true },
	}
}

func TestErrorsOfWrites(t *testing.T) {
	bad := errors.New("bad")
	c := newCache(t, hooks(bad))
	w := writes{t, c}
	apply(t, c, 1, fmt.Sprintf("a=1 r=%d", badRemoval))
	apply(t, c, 5, "b=1")
	live := mustWatch(t, c, watch{}) // in its initial phase until the end of the test

	x := change{Key: "x", Object: 1}
	with := func(object int) commit { return commit{Changes: []change{x, {Key: "y", Object: object}}} }
	big := commit{}
	for i := range 1000 {
		big.Changes = append(big.Changes, change{Key: fmt.Sprint(i), Object: 1})
	}
	big.Changes[999].Object = badPublish
	listed := func(p watchcache.Position, object int) func() error {
		return w.replace(p, listing(fmt.Sprintf("a=1 b=%d", object)))
	}
	higher, lower, foreign := at(9), at(2), watchcache.Position{Epoch: "f", Revision: 9}
	panicked := func(callback string) error { return &watchcache.PanicError{Callback: callback, Value: bad} }
	for _, row := range []struct {
		what  string
		write func() error
		want  error
	}{
		{"Put of an empty key", w.put("", 1), &watchcache.KeyError{}},
		{"Delete of an empty key", w.remove(""), &watchcache.KeyError{}},
		{"Apply with an empty key to delete", w.apply(commit{Changes: []change{x, {Delete: true}}}), &watchcache.KeyError{}},
		{"Replace with an empty key", w.replace(higher, listing("a=1 =1")), &watchcache.KeyError{}},
		{"Replace with a repeated key", w.replace(higher, listing("a=1 b=1 a=2")), &watchcache.KeyError{Key: "a"}},

		{"Apply at the head", w.apply(commit{Revision: 5, Changes: []change{x}}), &watchcache.RevisionError{Revision: 5, Head: 5}},
		{"Apply of nothing below the head", w.apply(commit{Revision: 4}), &watchcache.RevisionError{Revision: 4, Head: 5}},
		{"Apply that continues an earlier revision", w.apply(commit{Revision: 1, Continues: true, Changes: []change{x}}), &watchcache.RevisionError{Revision: 1, Head: 5}},
		{"Apply that continues a later revision", w.apply(commit{Revision: 6, Continues: true, Changes: []change{x}}), &watchcache.RevisionError{Revision: 6, Head: 5}},
		{"Progress below the head", w.progress(4), &watchcache.RevisionError{Revision: 4, Head: 5}},

		{"Put, Size panics", w.put("x", badSize), panicked("Options.Size")},
		{"Put, an index panics", w.put("x", badIndex), panicked("Options.Indexes[i]")},
		{"Put, Publish panics", w.put("x", badPublish), panicked("Options.Publish")},
		{"Delete, Publish panics", w.remove("r"), panicked("Options.Publish")},
		{"Apply, Size panics", w.apply(with(badSize)), panicked("Options.Size")},
		{"Apply, an index panics", w.apply(with(badIndex)), panicked("Options.Indexes[i]")},
		{"Apply, Publish panics", w.apply(with(badPublish)), panicked("Options.Publish")},
		{"Apply of many, Publish panics at the last", w.apply(big), panicked("Options.Publish")},
		{"Apply, Publish panics at a removal", w.apply(commit{Changes: []change{x, {Key: "r", Delete: true}}}), panicked("Options.Publish")},
		{"Replace, Size panics", listed(higher, badSize), panicked("Options.Size")},
		{"Replace, an index panics", listed(higher, badIndex), panicked("Options.Indexes[i]")},
		{"Replace, Equal panics", listed(higher, badEqual), panicked("Options.Equal")},
		{"Replace at the head, Equal panics", listed(at(5), badEqual), panicked("Options.Equal")},
		{"Replace, SameIdentity panics", listed(higher, badIdentity), panicked("Options.SameIdentity")},
		{"Replace, Publish panics", listed(higher, badPublish), panicked("Options.Publish")},
		{"Replace, Publish panics at a removal", listed(higher, 1), panicked("Options.Publish")},
		{"Replace at the head, Publish panics", listed(at(5), badPublish), panicked("Options.Publish")},
		{"Replace at a lower revision, Publish panics", listed(lower, badPublish), panicked("Options.Publish")},
		{"Replace under another epoch, Publish panics", listed(foreign, badPublish), panicked("Options.Publish")},
		{"Replace, the listing panics", w.replace(higher, func(func(item, error) bool) { panic(bad) }), panicked("Replace's items")},

		{"Trim beyond the head", func() error { return c.Trim(at(6)) }, &watchcache.FutureError{Requested: at(6), Head: at(5)}},
		{"Trim beyond the head by a part", func() error { return c.Trim(watchcache.Position{Epoch: "e", Revision: 5, Part: 1}) },
			&watchcache.FutureError{Requested: watchcache.Position{Epoch: "e", Revision: 5, Part: 1}, Head: at(5)}},
		{"Trim at the zero position", func() error { return c.Trim(watchcache.Position{}) }, watchcache.ErrEpoch},
	} {
		refused(t, c, row.what, row.want, row.write)
	}
	if err := c.Replace(lower, func(yield func(item, error) bool) { yield(item{}, bad) }); err != bad {
		t.Errorf("Replace: %v, want the listing's own error, unchanged", err)
	}
	wantPending(t, live, fmt.Sprintf("+a=1@1i +b=1@5i +r=%d@1i synced@5", badRemoval))
	apply(t, c, 0, "a=2") // and it works again
	wantPending(t, live, "~a=2@6")

	c = newCache(t, hooks("no error"))
	refused(t, c, "Put", &watchcache.PanicError{Callback: "Options.Size", Value: "no error"}, writes{t, c}.put("x", badSize))
}

func TestErrorsOfMirrorWrites(t *testing.T) {
	c := mirror(t, options{}, 5, "a=1")
	w := writes{t, c}
	refused(t, c, "Put", &watchcache.OptionError{Field: "Options.Mirror"}, w.put("a", 2))
	refused(t, c, "Delete", &watchcache.OptionError{Field: "Options.Mirror"}, w.remove("a"))
	refused(t, c, "Apply of nothing at revision 0", &watchcache.RevisionError{Head: 5}, w.apply(commit{}))

	c = newCache(t, options{Mirror: true, Epoch: "e"})
	before := figures(c)
	bad := errors.New("bad")
	for what, err := range map[string]error{
		"listing": c.Replace(at(5), func(yield func(item, error) bool) { _ = yield(item{Key: "a"}, nil) && yield(item{}, bad) }),
		"panic":   c.Replace(at(5), func(func(item, error) bool) { panic(bad) }),
	} {
		if now := figures(c); !errors.Is(err, bad) || now != before || now.Ready {
			t.Errorf("the first Replace (%s): %v with %+v, want it refused and the cache not ready", what, err, now)
		}
	}
}

func TestErrorsWhenRevisionsAreUsedUp(t *testing.T) {
	c := newCache(t, options{Epoch: "e"})
	apply(t, c, math.MaxUint64, "a=1")
	w := writes{t, c}
	for what, write := range map[string]func() error{
		"Put": w.put("b", 1), "Delete": w.remove("a"), "Apply": w.apply(commit{Changes: []change{{Key: "b"}}}),
	} {
		refused(t, c, what, watchcache.ErrRevisionOrder, write)
	}
}

// atOnce are writes and a watch that a cache that is closed, or about to be,
// refuses.
func (w writes) atOnce() map[string]func() error {
	head := w.c.Position()
	return map[string]func() error{
		"Put": w.put("a", 2), "Delete": w.remove("a"), "Apply": w.apply(commit{Changes: []change{{Key: "a", Delete: true}}}),
		"Apply of nothing": w.apply(commit{}), "Progress": w.progress(head.Revision + 1), "Progress at the head": w.progress(head.Revision),
		"Replace":                     w.replace(watchcache.Position{}, listing("b=1")),
		"Replace without difference":  w.replace(head, listing("a=1")),
		"Replace at the head":         w.replace(head, listing("b=1")),
		"Replace at a lower revision": w.replace(watchcache.Position{Revision: 1}, listing("b=1")),
		"Replace under another epoch": w.replace(watchcache.Position{Epoch: "f", Revision: 9}, listing("b=1")),
		"Watch": func() error {
			_, err := w.c.Watch(context.Background(), watch{Start: watchcache.FromNow()})
			return err
		},
	}
}

func TestErrorsOfAClosedCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closed := range []bool{false, true} {
			c := newCache(t, options{})
			apply(t, c, 0, "b=1")
			apply(t, c, 0, "a=1 -b")
			draining := mustWatch(t, c, watch{Start: watchcache.AfterRevision(1)})
			down := make(chan error, 1)
			if closed {
				c.Close()
			} else {
				go func() { down <- c.Shutdown(t.Context()) }()
				synctest.Wait()
			}
			before := figures(c)
			for what, write := range (writes{t, c}).atOnce() {
				wantError(t, what, write(), watchcache.ErrClosed)
				if now := figures(c); now != before {
					t.Errorf("%s: refused, and yet the figures went from %+v to %+v", what, before, now)
				}
			}
			if closed {
				wantPending(t, draining, "!closed")
				continue
			}
			wantPending(t, draining, "+a=1@2… -b=1@2 !closed")
			if err := <-down; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		}
	})
}

// TestErrorsOfAWriteThatMeetsClose: the cache is closed by a hook of the write.
func TestErrorsOfAWriteThatMeetsClose(t *testing.T) {
	for _, what := range []string{"Put", "Delete", "Apply", "Replace", "Replace at the head", "Replace at a lower revision", "Replace under another epoch"} {
		var c *cache
		armed := false
		c = newCache(t, options{Epoch: "e", Publish: func(_ uint64, ch change, _ int) int {
			if armed {
				c.Close()
			}
			return ch.Object
		}})
		apply(t, c, 2, "a=1")
		w := mustWatch(t, c, watch{Start: watchcache.FromNow()})
		position, snapshot := c.Position(), c.Snapshot()
		armed = true
		wantError(t, what, (writes{t, c}).atOnce()[what](), watchcache.ErrClosed)
		if c.Position() != position || c.Snapshot() != snapshot {
			t.Errorf("%s: refused, and yet the cache is at %v", what, c.Position())
		}
		wantPending(t, w, "!closed")
	}
}

func TestErrorsOfReads(t *testing.T) {
	c := mirror(t, options{}, 10, "a=1")
	apply(t, c, 12, "a=2")
	if err := c.Replace(at(20), listing("a=3")); err != nil { // nothing is known between 12 and 20
		t.Fatal(err)
	}
	reads := map[string]func(uint64) error{
		"Since":      func(revision uint64) error { _, err := c.Since(revision); return err },
		"SnapshotAt": func(revision uint64) error { _, err := c.SnapshotAt(revision); return err },
	}
	before := figures(c)
	for what, read := range reads {
		wantError(t, what+" beyond the head", read(21), &watchcache.FutureError{Requested: at(21), Head: at(20)})
		wantError(t, what+" in a hole", read(13), &watchcache.ExpiredError{Requested: at(13), Oldest: at(10), HoleEnd: at(20)})
		wantError(t, what+" at the end of a hole", read(19), &watchcache.ExpiredError{Requested: at(19), Oldest: at(10), HoleEnd: at(20)})
		for _, revision := range []uint64{10, 12, 20} {
			if err := read(revision); err != nil {
				t.Errorf("%s(%d): %v", what, revision, err)
			}
		}
	}
	if now := figures(c); now != before {
		t.Errorf("reading took the figures from %+v to %+v", before, now)
	}
	if err := c.Trim(at(12)); err != nil {
		t.Fatal(err)
	}
	for what, read := range reads {
		wantError(t, what+" before what was trimmed", read(10), &watchcache.ExpiredError{Requested: at(10), Oldest: at(12)})
	}
}

func TestErrorsOfPositionTexts(t *testing.T) {
	for _, text := range []string{"", "e", "e:x", "e:1.x", "%:1", "e:01"} {
		p, err := watchcache.ParsePosition(text)
		if wantError(t, text, err, watchcache.ErrInvalidPosition); !p.IsZero() {
			t.Errorf("%q: %v beside the error", text, p)
		}
	}
}

func TestErrorsOfIntervals(t *testing.T) {
	for _, row := range []struct {
		what  string
		turns func(*cache) error
		want  watchcache.ExpiredError
	}{
		{"in the middle of a commit", func(c *cache) error { return c.Trim(at(13)) }, watchcache.ExpiredError{Requested: at(11), Oldest: at(13)}},
		{"numbered anew", func(c *cache) error {
			return c.Replace(watchcache.Position{Epoch: "f", Revision: 1}, listing(""))
		}, watchcache.ExpiredError{Requested: at(11), Oldest: watchcache.Position{Epoch: "f", Revision: 1}}},
	} {
		c := mirror(t, options{}, 10, "")
		apply(t, c, 11, "a=1")
		apply(t, c, 12, "a=2 b=2 c=2")
		apply(t, c, 13, "a=3")
		interval, err := c.Since(10)
		if err != nil {
			t.Fatal(err)
		}
		taken, ends := 0, 0
		for ev, err := range interval.All() {
			if err != nil {
				wantError(t, row.what, err, &row.want)
				if ends++; ev != (event{}) {
					t.Errorf("%s: %v beside the error", row.what, show(ev))
				}
				continue
			}
			if taken++; taken == 2 {
				if err := row.turns(c); err != nil {
					t.Fatal(err)
				}
			}
		}
		if taken != 2 || ends != 1 {
			t.Errorf("%s: %d events and %d errors, want what came before and one error", row.what, taken, ends)
		}
	}
}

func TestErrorsOfRun(t *testing.T) {
	gone, broken := errors.New("gone"), errors.New("broken")
	type scripted = watchcachetest.Source[int]
	var cancel context.CancelCauseFunc
	cancelled := func(*scripted, *cache) { cancel(gone) }
	closed := func(_ *scripted, c *cache) { c.Close() }
	drained := func(_ *scripted, c *cache) { // with a watcher that still has something to take
		patient := watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: watchcache.NoLimit}}
		c.Watch(context.Background(), watch{Stall: patient})
		go c.Shutdown(context.Background())
	}
	plain := func(s *scripted) watchcache.Source[int] { return s }
	streaming := func(s *scripted) watchcache.Source[int] { return watchcachetest.StreamingSource[int]{Source: s} }
	for name, of := range map[string]func(*scripted) watchcache.Source[int]{"lists": plain, "streams": streaming} {
		for _, row := range []struct {
			what string
			prep func(*scripted)
			end  func(*scripted, *cache)
			want error
		}{
			{"cancelled while it lists", func(s *scripted) { s.Hold() }, cancelled, gone},
			{"cancelled while it watches", nil, cancelled, gone},
			{"cancelled between failures", func(s *scripted) { s.FailLists(1000, broken) }, cancelled, gone},
			{"closed while it lists", func(s *scripted) { s.Hold() }, closed, watchcache.ErrClosed},
			{"closed while it watches", nil, closed, watchcache.ErrClosed},
			{"closed between failures", func(s *scripted) { s.FailLists(1000, broken) }, closed, watchcache.ErrClosed},
			{"shut down", nil, drained, watchcache.ErrClosed},
			{"a listing that is terminal", func(s *scripted) { s.FailLists(1, watchcache.Terminal(broken)) }, nil, broken},
			{"half a listing that is terminal", func(s *scripted) { s.FailListing(1, fmt.Errorf("half: %w", watchcache.Terminal(broken))) }, nil, broken},
			{"a cut that is terminal", nil, func(s *scripted, _ *cache) { s.Cut(watchcache.Terminal(broken)) }, broken},
			{"a watch that is terminal", func(s *scripted) { s.FailWatches(1, watchcache.Terminal(broken)) }, func(s *scripted, _ *cache) { s.Cut(nil) }, broken},
		} {
			t.Run(name+"/"+row.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := watchcachetest.NewSource[int]("e")
					s.Put("a", 1)
					if row.prep != nil {
						row.prep(s)
					}
					c := newCache(t, options{Mirror: true})
					var ctx context.Context
					ctx, cancel = context.WithCancelCause(t.Context())
					defer cancel(nil)
					result := make(chan error, 1)
					go func() { result <- c.Run(ctx, of(s)) }()
					synctest.Wait()
					if row.end != nil {
						row.end(s, c)
					}
					wantError(t, row.what, <-result, row.want)
					if st, _ := c.Status(); st.Connected || row.want == broken && !errors.Is(st.LastError, broken) {
						t.Errorf("after Run the status is %+v", st)
					}
					if row.want == watchcache.ErrClosed { // and again, at once
						calls := s.Calls().Lists
						wantError(t, "Run of a closed cache", c.Run(t.Context(), s), watchcache.ErrClosed)
						if s.Calls().Lists != calls {
							t.Error("a closed cache has asked its source")
						}
					}
				})
			})
		}
	}
	wantError(t, "Run without Mirror", newCache(t, options{}).Run(t.Context(), watchcachetest.NewSource[int]("e")), &watchcache.OptionError{Field: "Options.Mirror"})
	if watchcache.Terminal(nil) != nil || watchcache.RetryAfter(nil, time.Second) != nil {
		t.Error("no error was marked, and became one")
	}
}

func TestErrorsOfASecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, options{Mirror: true})
		first, second := watchcachetest.NewSource[int]("e"), watchcachetest.NewSource[int]("f")
		stop := runs(t, c, first)
		synctest.Wait()
		refused(t, c, "a second Run", watchcache.ErrInUse, func() error { return c.Run(t.Context(), second) })
		if calls := second.Calls(); calls.Lists != 0 {
			t.Error("the second source was asked")
		}
		first.Put("a", 1)
		synctest.Wait()
		if i, _ := c.Get("a"); i.Object != 1 {
			t.Error("a second Run has harmed the first")
		}
		wantError(t, "the first Run", stop(), context.Canceled)
		stop = runs(t, c, first) // it is free again
		synctest.Wait()
		if st, _ := c.Status(); !st.Connected {
			t.Errorf("a Run after the first has ended: %+v", st)
		}
		stop()
	})
}

// TestExpiredErrorsExplainThemselves: none says that a position is too old which is
// not.
func TestExpiredErrorsExplainThemselves(t *testing.T) {
	for _, row := range []struct {
		err  watchcache.ExpiredError
		want string
	}{
		{watchcache.ExpiredError{Requested: at(3), Oldest: at(7)}, "e:3 cannot be resumed, the oldest that can is e:7"},
		{watchcache.ExpiredError{Requested: at(9), Oldest: at(7), HoleEnd: at(12)}, "e:9 cannot be resumed, the changes after it are not known up to the relist at e:12"},
		{watchcache.ExpiredError{Requested: at(9), Oldest: at(7)}, "it was at e:9 when the state was listed anew at e:7"},
		{watchcache.ExpiredError{Requested: watchcache.Position{Epoch: "f", Revision: 9}, Oldest: at(7)}, "f:9 is of another epoch than e:7"},
		{watchcache.ExpiredError{Oldest: at(7)}, "the zero Position is no place to resume after, the oldest is e:7"},
	} {
		if got, want := row.err.Error(), "watchcache: position expired: "+row.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package watchcachetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

type source = watchcachetest.Source[int]

// variants are a source with each set of the optional interfaces.
var variants = []struct {
	name              string
	of                func(*source) watchcache.Source[int]
	streams, requests bool
}{
	{"plain", func(s *source) watchcache.Source[int] { return s }, false, false},
	{"streaming", func(s *source) watchcache.Source[int] { return watchcachetest.StreamingSource[int]{Source: s} }, true, false},
	{"requesting", func(s *source) watchcache.Source[int] { return watchcachetest.RequestingSource[int]{Source: s} }, false, true},
	{"both", func(s *source) watchcache.Source[int] {
		return watchcachetest.StreamingRequestingSource[int]{Source: s}
	}, true, true},
}

func TestSourceOffersTheInterfacesThatATestChooses(t *testing.T) {
	for _, v := range variants {
		c := newCache(t, options{Mirror: true})
		check := watchcachetest.NewChecker(options{})
		for _, s := range []watchcache.Source[int]{v.of(watchcachetest.NewSource[int]("e")), check.Source(c, v.of(watchcachetest.NewSource[int]("e")))} {
			if _, ok := s.(watchcache.Streamer[int]); ok != v.streams {
				t.Errorf("%s: want a Streamer: %v, got %v of %T", v.name, v.streams, ok, s)
			}
			if _, ok := s.(watchcache.ProgressRequester); ok != v.requests {
				t.Errorf("%s: want a ProgressRequester: %v, got %v of %T", v.name, v.requests, ok, s)
			}
		}
	}
}

// mirror is a cache that runs on a source, a watcher of everything, and a checker
// that hears of both.
type mirror struct {
	t       *testing.T
	source  *source
	cache   *cache
	check   *watchcachetest.Checker[int]
	watched *watched
	follow  *watchcachetest.Follower[int]
	ran     chan error
	cancel  context.CancelFunc
}

// mirrored runs a test in a bubble, for each variant of a source.
func mirrored(t *testing.T, before func(*source), test func(*mirror)) {
	t.Helper()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := watchcachetest.NewSource[int]("e")
				s.Put("a", 1)
				s.Put("b", 2)
				if before != nil {
					before(s)
				}
				c := newCache(t, options{Mirror: true})
				m := &mirror{t: t, source: s, cache: c, check: watchcachetest.NewChecker(options{}), ran: make(chan error, 1)}
				ctx, cancel := context.WithCancel(t.Context())
				m.cancel = cancel
				go func() { m.ran <- c.Run(ctx, m.check.Source(c, v.of(s))) }()
				test(m)
				cancel()
				if err := <-m.ran; !errors.Is(err, context.Canceled) {
					t.Errorf("want Run to end with its context, got %v", err)
				}
				c.Close()
				synctest.Wait()
				m.check.Verify(t)
				if open := s.Calls().Open; open != 0 {
					t.Errorf("want no stream open after Run, got %d", open)
				}
			})
		})
	}
}

// watch follows everything from the state.
func (m *mirror) watch() {
	m.t.Helper()
	w, err := m.cache.Watch(m.t.Context(), watchOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	m.watched = m.check.Watcher("all", nil, position{})
	m.follow = m.watched.Follow(m.t, w)
	m.settled()
}

// settled waits until the cache, and who follows it, is like the source.
func (m *mirror) settled() {
	m.t.Helper()
	synctest.Wait()
	at := m.source.Position()
	if got := m.cache.Position(); got.Revision != at.Revision || got.Part != at.Part {
		m.t.Fatalf("want the cache at %v, where its source is, got %v", at, got)
	}
	if got := slices.Collect(m.cache.Snapshot().All()); !slices.Equal(got, m.source.Items()) {
		m.t.Errorf("want the state %v, got %v", m.source.Items(), got)
	}
	if m.watched != nil {
		m.watched.CaughtUp(m.cache.Position())
	}
}

// lastError verifies what the cache says of its source.
func (m *mirror) lastError(want error) {
	m.t.Helper()
	synctest.Wait()
	if s, _ := m.cache.Status(); !errors.Is(s.LastError, want) {
		m.t.Errorf("want the last error %v, got %v", want, s.LastError)
	}
}

func TestSourceIsMirrored(t *testing.T) {
	mirrored(t, nil, func(m *mirror) {
		m.watch()
		m.source.Put("c", 3)
		m.source.Commit(watchcache.Commit[int]{Revision: 90, Changes: []change{{Key: "a", Delete: true}, {Key: "d", Object: 4}}})
		m.source.Commit(watchcache.Commit[int]{Continues: true, Changes: []change{{Key: "e", Object: 5}}})
		m.source.Delete("b")
		m.settled()
		m.source.Delete("nothing")
		m.source.Progress(200)
		m.settled()
		if n := len(m.follow.Events()); n != 3+1+2+1+1 {
			m.t.Errorf("want 8 events, got %d: %v", n, m.follow.Events())
		}
	})
}

func TestSourceFailsAsScripted(t *testing.T) {
	mine := errors.New("mine")
	for _, row := range []struct {
		name   string
		before func(*source)
		want   error
	}{
		{"lists", func(s *source) { s.FailLists(2, mine) }, mine},
		{"lists, without an error of the test's", func(s *source) { s.FailLists(1, nil) }, watchcachetest.ErrScripted},
		{"a listing half-way", func(s *source) { s.FailListing(1, mine) }, mine},
		{"a listing after its end", func(s *source) { s.FailListing(9, mine) }, mine},
		{"a key listed twice", func(s *source) { s.RepeatKey("a") }, watchcache.ErrInvalidKey},
		{"an event that goes back", func(s *source) {
			s.Inject(watchcache.CommitEvent(watchcache.Commit[int]{Revision: 1, Changes: []change{{Key: "a", Object: 9}}}))
		}, watchcache.ErrRevisionOrder},
		{"progress that goes back", func(s *source) { s.Inject(watchcache.ProgressEvent[int](1)) }, watchcache.ErrRevisionOrder},
		{"an event out of place", func(s *source) { s.Inject(watchcache.SyncedEvent[int](at(2)), watchcache.SyncedEvent[int](at(2))) }, watchcache.ErrSource},
	} {
		t.Run(row.name, func(t *testing.T) {
			mirrored(t, row.before, func(m *mirror) {
				m.lastError(row.want)
				m.source.Put("c", 3)
				time.Sleep(time.Hour) // in a bubble: the backoff
				m.watch()
				m.source.Put("c", 4)
				m.settled()
			})
		})
	}
}

// TestTheLastErrorEndsWithTheNextListing: a relist that lost nothing is the end of
// the trouble, also where no change follows it.
func TestTheLastErrorEndsWithTheNextListing(t *testing.T) {
	mirrored(t, nil, func(m *mirror) {
		m.watch()
		release := m.source.Hold()
		m.source.Put("c", 3)
		m.source.Put("c", 4)
		m.source.Compact(m.source.Position().Revision)
		release()
		m.lastError(watchcache.ErrExpired)
		time.Sleep(time.Hour) // in a bubble: it lists anew
		m.settled()
		m.lastError(nil)
		m.source.Cut(watchcachetest.ErrScripted)
		time.Sleep(time.Hour) // connected again, and nothing has come through
		m.lastError(watchcachetest.ErrScripted)
		m.source.Progress(m.source.Position().Revision + 1)
		m.lastError(nil)
	})
}

func TestSourceWatchesFailAsScripted(t *testing.T) {
	mine := errors.New("mine")
	mirrored(t, nil, func(m *mirror) {
		m.watch()
		m.source.FailWatches(2, mine)
		m.source.Cut(nil)
		m.source.Put("c", 3)
		time.Sleep(time.Hour)
		m.lastError(nil)
		m.settled()
		m.source.FailWatches(1_000_000, nil)
		m.source.Cut(mine)
		m.lastError(mine)
		time.Sleep(time.Hour)
		m.lastError(watchcachetest.ErrScripted)
		m.source.FailWatches(0, nil)
		time.Sleep(time.Hour)
		m.settled()
		if after := m.source.Calls().After; len(after) < 4 || after[len(after)-1] != at(3) {
			m.t.Errorf("want the last Watch after e:3, got %v", after)
		}
	})
}

func TestSourceExpiresWhatWasCompacted(t *testing.T) {
	for _, row := range []struct {
		name    string
		compact func(*source) // with a change of "a" in what is compacted
	}{
		{"for who resumes", func(s *source) {
			s.Cut(nil)
			s.Put("c", 3)
			s.Put("a", 7)
			s.Compact(3)
		}},
		{"for a stream that has still to tell of it", func(s *source) {
			defer s.Hold()()
			s.Put("c", 3)
			s.Put("a", 7)
			s.Compact(4)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			mirrored(t, nil, func(m *mirror) {
				m.watch()
				calls := m.source.Calls()
				listings := calls.Lists + calls.Streams
				row.compact(m.source)
				time.Sleep(time.Hour)
				m.settled()
				if calls := m.source.Calls(); calls.Lists+calls.Streams != listings+1 {
					m.t.Errorf("want to be listed anew, once more than %d times, got %+v", listings, calls)
				}
				events := m.follow.Events()
				if last := events[len(events)-2:]; last[0].Revision != 4 || last[1].Revision != 4 {
					m.t.Errorf("want the difference at revision 4, where it was listed, got %v", last)
				}
			})
		})
	}
}

func TestSourceRestarts(t *testing.T) {
	for _, row := range []struct {
		name string
		at   position
	}{
		{"under another epoch", position{Epoch: "f", Revision: 50}},
		{"at a lower revision", at(1)},
		{"at a lower revision of another epoch", position{Epoch: "f", Revision: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			mirrored(t, nil, func(m *mirror) {
				m.watch()
				m.source.Restart(row.at, item{Key: "z", Object: 9})
				time.Sleep(time.Hour)
				m.settled()
				if err := m.follow.Err(); !errors.Is(err, watchcache.ErrExpired) {
					m.t.Errorf("want watchers to end as expired, got %v", err)
				}
			})
		})
	}
}

func TestSourceHoldsAndDelays(t *testing.T) {
	var release func()
	mirrored(t, func(s *source) { release = s.Hold() }, func(m *mirror) {
		synctest.Wait()
		if s, _ := m.cache.Status(); s.Ready {
			m.t.Error("want no listing while the source is held")
		}
		release()
		release() // once counts
		m.watch()
		release = m.source.Hold()
		m.source.Put("c", 3)
		synctest.Wait()
		if r := m.cache.Position().Revision; r != 2 {
			m.t.Errorf("want nothing told while the source is held, got revision %d", r)
		}
		release()
		m.settled()
		m.source.Delay(nil, time.Minute)
		m.source.Put("c", 4)
		time.Sleep(time.Minute - 1)
		if r := m.cache.Position().Revision; r != 3 {
			m.t.Errorf("want the event a minute late, got revision %d before", r)
		}
		time.Sleep(time.Nanosecond)
		m.settled()
		m.source.Put("c", 5) // Cut and the context end a delay
		synctest.Wait()
		m.source.Cut(nil)
		synctest.Wait()
		if open := m.source.Calls().Open; open != 0 {
			m.t.Errorf("want a delayed stream to be cut at once, got %d open", open)
		}
		time.Sleep(time.Hour)
		m.settled()
		m.source.Put("c", 6)
		synctest.Wait()
	})
}

func TestSourceDelaysByTheTestsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchcachetest.NewSource[int]("e")
		clock := make(manual)
		s.Delay(clock, time.Minute)
		listed := make(chan error)
		go func() {
			_, _, err := s.List(t.Context(), 0)
			listed <- err
		}()
		time.Sleep(time.Hour)
		select {
		case <-listed:
			t.Fatal("want the listing to wait for the clock that it was given")
		default:
		}
		clock <- time.Now()
		if err := <-listed; err != nil {
			t.Errorf("want a listing, got %v", err)
		}
	})
}

// manual is a clock whose time comes when the test says so.
type manual chan time.Time

func (manual) Now() time.Time                         { return time.Time{} }
func (m manual) After(time.Duration) <-chan time.Time { return m }

func TestSourceListsWhatIsFreshEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchcachetest.NewSource[int]("e")
		listed := make(chan position)
		go func() {
			at, _, err := s.List(t.Context(), 5)
			if err != nil {
				t.Error(err)
			}
			listed <- at
		}()
		s.Progress(4)
		synctest.Wait()
		select {
		case at := <-listed:
			t.Errorf("want no listing before revision 5, got one at %v", at)
		default:
		}
		s.Progress(5)
		if at := <-listed; at.Revision != 5 {
			t.Errorf("want a listing at 5, got %v", at)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errBroken)
		defer cancel()
		if _, _, err := s.List(ctx, 6); !errors.Is(err, errBroken) {
			t.Errorf("want the context's cause, got %v", err)
		}
		if calls := s.Calls(); calls.Lists != 2 || !slices.Equal(calls.AtLeast, []uint64{5, 6}) {
			t.Errorf("want 2 calls of List, at least 5 and 6, got %+v", calls)
		}
	})
}

func TestSourceTellsProgressOnRequest(t *testing.T) {
	mirrored(t, nil, func(m *mirror) {
		m.watch()
		m.source.ProgressOnRequest(true)
		m.source.Progress(9)
		synctest.Wait()
		if r := m.cache.Position().Revision; r != 2 {
			m.t.Errorf("want no progress without a request, got revision %d", r)
		}
		m.source.FailProgressRequests(1, nil)
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
		defer cancel()
		err := m.cache.WaitRevision(ctx, 9)
		requests := m.source.Calls().ProgressRequests
		if asked := requests > 0; asked != (err == nil) {
			m.t.Errorf("want progress exactly if it can be asked for, got %v after %d requests", err, requests)
		}
		if requests == 1 {
			m.t.Error("want the request that fails to be followed by another")
		}
		m.source.ProgressOnRequest(false)
		m.source.Progress(10)
		m.settled()
	})
}

func TestSourcePanicsOnAFaultOfTheTest(t *testing.T) {
	for name, fault := range map[string]func(*source){
		"Commit":    func(s *source) { s.Commit(watchcache.Commit[int]{Revision: 2}) },
		"Continues": func(s *source) { s.Commit(watchcache.Commit[int]{Revision: 1, Continues: true}) },
		"Progress":  func(s *source) { s.Progress(1) },
		"Compact":   func(s *source) { s.Compact(3) },
		"RepeatKey": func(s *source) { s.RepeatKey("none") },
	} {
		t.Run(name, func(t *testing.T) {
			s := watchcachetest.NewSource[int]("e")
			s.Put("a", 1)
			s.Put("a", 2)
			defer func() {
				if recover() == nil {
					t.Error("want a panic: the script is wrong")
				}
				if got := s.Position(); got != at(2) {
					t.Errorf("want nothing changed, got %v", got)
				}
			}()
			fault(s)
		})
	}
}

// Who waits for a revision while no source is followed asks the next one for progress.
func TestWaitingForARevisionAsksTheNextSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := watchcache.New(watchcache.Options[int]{Mirror: true})
		source := watchcachetest.NewSource[int]("e")
		source.Put("a", 1)
		source.ProgressOnRequest(true)
		follow := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go c.Run(ctx, watchcachetest.RequestingSource[int]{Source: source})
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		follow()()
		waited := make(chan error, 1)
		go func() { waited <- c.WaitRevision(t.Context(), 2) }()
		synctest.Wait()
		stop := follow() // its listing equals the state
		source.Progress(2)
		time.Sleep(time.Minute)
		select {
		case err := <-waited:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("still waiting after %d requests for progress", source.Calls().ProgressRequests)
		}
		stop()
		c.Close()
	})
}

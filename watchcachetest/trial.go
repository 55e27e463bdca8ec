package watchcachetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// trial is one subject under test, and the checker that knows what was written. It
// looks at everything from one side: keys without the subject's prefix, and texts.
type trial[T any] struct {
	testing.TB
	Subject[T]
	ctx   context.Context
	check *Checker[string]
	rest  sync.WaitGroup // consumers
	stop  context.CancelFunc

	mu      sync.Mutex
	seen    *sync.Cond // a consumer got further
	state   map[string]string
	log     []logged
	serial  int
	written uint64 // the newest revision
}

// logged is one change as it was made.
type logged struct {
	revision      uint64
	key           string
	before, after string // "": not there
}

type selects = func(key, object string) bool

// The words of an object's text: what is selected by.
func even(_, object string) bool { return strings.HasSuffix(object, " even") }

// parity is the index that each subject is given; its values are "even" and "odd".
const parity = "parity"

// patience is how long a test waits for all that must come.
var patience = time.Minute

func newTrial[T any](t testing.TB, start starter[T], opts watchcache.Options[T]) *trial[T] {
	t.Helper()
	r := &trial[T]{TB: t, check: NewChecker(watchcache.Options[string]{}), state: map[string]string{}}
	r.seen = sync.NewCond(&r.mu)
	var subject atomic.Pointer[Subject[T]] // nil while there are no objects
	opts.Indexes = map[string]func(string, T) []string{parity: func(_ string, object T) []string {
		_, word, _ := strings.Cut(subject.Load().text(object), " ")
		return []string{word}
	}}
	r.Subject = start(t, opts)
	r.complete(t)
	subject.Store(&r.Subject)
	r.ctx, r.stop = context.WithTimeout(context.Background(), patience)
	t.Cleanup(r.stop)
	if err := r.Cache.WaitReady(r.ctx); err != nil {
		t.Fatalf("the cache does not become ready: %v", err)
	}
	snapshot := r.Cache.Snapshot()
	if n := snapshot.Len(); n != 0 {
		t.Fatalf("the state has %d keys at the start, want none", n)
	}
	r.check.Replaced(snapshot.Position())
	return r
}

func (r *trial[T]) has(option string) bool { return !slices.Contains(r.Lacks, option) }

// commit changes some keys, in the way that n says, and tells the checker.
func (r *trial[T]) commit(n int) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []watchcache.Change[string]
	var log []logged
	for i := range 1 + n%3 {
		ch := watchcache.Change[string]{Key: fmt.Sprintf("%s/%d", []string{"red", "blue"}[n/2%2], (n+7*i)%5)}
		before := r.state[ch.Key]
		if ch.Delete = before != "" && n%4 == 3; ch.Delete {
			delete(r.state, ch.Key)
		} else {
			r.serial++
			ch.Object = fmt.Sprintf("%d %s", r.serial, []string{"even", "odd"}[(n+i)%2])
			r.state[ch.Key] = ch.Object
		}
		log = append(log, logged{key: ch.Key, before: before, after: ch.Object})
		if changes = append(changes, ch); r.Single {
			break
		}
	}
	own := make([]watchcache.Change[T], len(changes))
	for i, ch := range changes {
		own[i] = r.change(ch)
	}
	revision, err := r.Commit(own...)
	if err != nil {
		r.Errorf("commit: %v", err)
		return
	}
	if revision <= r.written {
		r.Errorf("commit at %d, after %d", revision, r.written)
	}
	r.written = revision
	for i := range log {
		log[i].revision = revision
	}
	r.log = append(r.log, log...)
	r.check.Committed(watchcache.Position{Epoch: r.Cache.Position().Epoch, Revision: revision}, changes...)
}

// last returns the newest revision that concerns a selection.
func (r *trial[T]) last(selects selects) (revision uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.log {
		if selects == nil || l.before != "" && selects(l.key, l.before) || l.after != "" && selects(l.key, l.after) {
			revision = l.revision
		}
	}
	return revision
}

// newest returns the newest revision that was written.
func (r *trial[T]) newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written
}

// caughtUp waits until the cache has everything that was written.
func (r *trial[T]) caughtUp() watchcache.Position {
	r.Helper()
	written := r.newest()
	if err := r.Cache.WaitRevision(r.ctx, written); err != nil {
		r.Fatalf("the cache does not get to revision %d: %v", written, err)
	}
	return r.Cache.Position()
}

// reason returns why a watch does not start, or how it ends.
func (r *trial[T]) reason(ctx context.Context, opts watchcache.WatchOptions[string]) error {
	events, err := r.watch(ctx, opts)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	r.rest.Go(func() {
		var last error
		for _, err := range events {
			last = err
		}
		ended <- last
	})
	select {
	case err := <-ended:
		return err
	case <-r.ctx.Done():
		return errors.New("it does not end")
	}
}

// finish has each consumer take the last commit, ends it, and compares
// everything.
func (r *trial[T]) finish(consumers ...*consumer[T]) {
	r.Helper()
	at := r.caughtUp()
	for _, c := range consumers {
		c.await()
		c.watched.CaughtUp(at)
		c.end()
	}
	snapshot := r.Cache.Snapshot()
	r.check.compareWith(snapshot.Position(), r.items(snapshot))
	r.check.Verify(r.TB)
	r.nobodyLeft()
}

// nobodyLeft waits until the cache has no watcher.
func (r *trial[T]) nobodyLeft() {
	r.Helper()
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		r.rest.Wait()
	}()
	select {
	case <-rested:
	case <-r.ctx.Done():
		r.Error("not all streams have ended")
	}
	for r.Cache.Stats().Watchers > 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-r.ctx.Done():
			r.Errorf("%d watchers are left", r.Cache.Stats().Watchers)
			r.stop()
			return
		}
	}
	r.stop()
}

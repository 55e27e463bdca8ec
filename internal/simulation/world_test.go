package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// figures are what was done, and the most that was there at a time.
type figures struct {
	steps, faults, events, refused, restarts int
	watchers, goroutines, heap               int // high-water marks
}

func (f *figures) add(o figures) {
	f.steps += o.steps
	f.faults += o.faults
	f.events += o.events
	f.refused += o.refused
	f.restarts += o.restarts
	f.watchers = max(f.watchers, o.watchers)
	f.goroutines = max(f.goroutines, o.goroutines)
	f.heap = max(f.heap, o.heap)
}

func (f *figures) look(watchers int) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	f.watchers = max(f.watchers, watchers)
	f.goroutines = max(f.goroutines, runtime.NumGoroutine())
	f.heap = max(f.heap, int(sample[0].Value.Uint64()))
}

// world is what a plan runs in. Everything in it is its own goroutine's, which
// touches it only while all others rest.
type world struct {
	config  config
	source  *watchcachetest.Source[int]
	release func() // of a held source
	clock   *jumpingClock
	process *process
	clients []*client
	seed    int // of all objects: each is new
	pasts   int // how often the source went back to a past under its epoch's name
	figures figures
	slept   atomic.Int64 // see sleep
}

// process is a cache, and what follows its source. A new one knows nothing of the
// one before.
type process struct {
	cache *watchcache.Cache[int]
	check *watchcachetest.Checker[int]
	stop  context.CancelFunc
	ran   chan struct{} // closed when Run has returned, with err
	err   error
}

const mostClients = 200

// run lives a plan, in a bubble, and returns the first thing that is wrong. The
// digest is of everything that clients took, and of how their streams ended.
func run(p plan) (digest uint64, f figures, err error) {
	w := &world{config: p.config, source: watchcachetest.NewSource[int]("e"), clock: new(jumpingClock)}
	if err := w.start(); err != nil {
		return 0, w.figures, err
	}
	for n, s := range p.steps {
		err := w.do(s)
		w.rest()
		w.figures.steps++
		if s.kind.faulty() {
			w.figures.faults++
		}
		if n%16 == 0 {
			w.figures.look(len(w.clients))
		}
		if err == nil && n%64 == 63 {
			err = w.process.check.Err()
		}
		if err != nil {
			w.abandon()
			return 0, w.figures, fmt.Errorf("after step %d, %s: %w", n, kindNames[s.kind], err)
		}
	}
	err = w.settle()
	w.figures.look(len(w.clients))
	if e := w.end(); err == nil {
		err = e
	}
	if err != nil {
		err = fmt.Errorf("at the end: %w", err)
	}
	for _, c := range w.clients {
		w.figures.events += c.taken
	}
	return w.digest(), w.figures, err
}

// rest lets everything come to rest: all that a source has told by now is in the
// cache, and whoever waited for it has it.
func (w *world) rest() {
	w.sleep(10 * time.Microsecond) // see paced
	synctest.Wait()
}

// sleep lets time pass. What the clients' loops do then comes after all that was done
// before, which the race detector cannot know: it sees who wakes whom, and time wakes
// them. They look at slept first.
func (w *world) sleep(d time.Duration) {
	w.slept.Add(1)
	time.Sleep(d)
}

func (w *world) digest() uint64 {
	h := fnv.New64a()
	for _, c := range w.clients {
		fmt.Fprintf(h, "%s %d %x\n", c.name, c.taken, c.digest.Sum64())
	}
	return h.Sum64()
}

// start starts a process.
func (w *world) start() error {
	opts := watchcache.Options[int]{
		Mirror:    true,
		Capacity:  w.config.capacity,
		Retention: time.Duration(w.config.retention) * time.Second,
		MaxBytes:  int64(w.config.maxBytes),
		Size:      func(_ string, object int) int { return 10 + object%50 },
		Indexes:   map[string]func(string, int) []string{"rest": func(_ string, object int) []string { return []string{strconv.Itoa(object % 3)} }},
		Clock:     w.clock,
	}
	if w.config.expire {
		opts.Relist = watchcache.RelistExpire
	}
	cache, err := watchcache.New(opts)
	if err != nil {
		return err
	}
	check := watchcachetest.NewChecker(opts)
	source := []watchcache.Source[int]{
		paced{w.source},
		pacedStreaming{paced{watchcachetest.StreamingSource[int]{Source: w.source}}},
		pacedRequesting{paced{watchcachetest.RequestingSource[int]{Source: w.source}}},
		pacedStreamingRequesting{pacedStreaming{paced{watchcachetest.StreamingRequestingSource[int]{Source: w.source}}}},
	}[w.config.variant]
	ctx, stop := context.WithCancel(context.Background())
	p := &process{cache: cache, check: check, stop: stop, ran: make(chan struct{})}
	go func() {
		defer close(p.ran)
		p.err = cache.Run(ctx, check.Source(cache, source))
	}()
	w.process = p
	synctest.Wait()
	return nil
}

// end ends the process, and whatever in it is not at rest then. Clients find out.
// What is wrong with a process that has ended, it tells again.
func (w *world) end() error {
	p := w.process
	p.stop()
	<-p.ran
	p.cache.Close()
	synctest.Wait()
	var wrong error
	for _, c := range w.clients {
		if err := c.lost(); err != nil && wrong == nil {
			wrong = err
		}
	}
	synctest.Wait()
	switch stats := p.cache.Stats(); {
	case wrong != nil:
	case !errors.Is(p.err, context.Canceled):
		wrong = fmt.Errorf("the run ended with %v", p.err)
	case stats.Watchers != 0:
		wrong = fmt.Errorf("%d watchers are left", stats.Watchers)
	default:
		wrong = p.check.Err()
	}
	return wrong
}

// abandon ends everything that a failed life has left, so that the bubble can end.
func (w *world) abandon() {
	w.letGo()
	w.end()
}

// settle has everything heal, and checks that it has.
func (w *world) settle() error {
	w.heal()
	w.sleep(10 * time.Minute) // a few times the longest backoff
	synctest.Wait()
	w.source.Put("last", w.object())
	w.sleep(10 * time.Minute)
	synctest.Wait()
	p := w.process
	status, _ := p.cache.Status()
	if !status.Connected || status.LastError != nil {
		return fmt.Errorf("20 minutes after the last fault: %+v", status)
	}
	for _, c := range w.clients {
		for range 2 { // a policy may have ended it while it was behind: then from where it is
			if err := c.comeBack(); err != nil {
				return err
			}
			if err := c.takeAll(); err != nil {
				return err
			}
		}
		if c.watcher == nil {
			return fmt.Errorf("%s cannot come back", c.name)
		}
		c.watched.CaughtUp(p.cache.Position())
	}
	snapshot := p.cache.Snapshot()
	if got, want := slices.Collect(snapshot.All()), w.source.Items(); !slices.Equal(got, want) {
		return fmt.Errorf("the cache has %v, its source %v", got, want)
	}
	p.check.Snapshot(snapshot)
	return p.check.Err()
}

// heal ends what is wrong with the source.
func (w *world) heal() {
	w.letGo()
	w.source.Delay(nil, 0)
	w.source.FailLists(0, nil)
	w.source.FailWatches(0, nil)
}

func (w *world) letGo() {
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// object returns one that there was not yet.
func (w *world) object() int {
	w.seed++
	return w.seed
}

// do takes one step.
func (w *world) do(s step) error {
	source, cache := w.source, w.process.cache
	at := source.Position()
	switch s.kind {
	case doCommit, doContinue:
		commit := watchcache.Commit[int]{Continues: s.kind == doContinue && w.config.parts && at.Revision > 0, Changes: w.changes(s)}
		if !commit.Continues && s.c%8 == 0 {
			commit.Revision = at.Revision + 2 + uint64(s.c%50)
		}
		source.Commit(commit)
	case doQuiet:
		source.Progress(at.Revision + uint64(s.a%30))
	case doTake:
		if len(w.clients) > 0 {
			return w.clients[s.a%len(w.clients)].take(1 + s.b%20)
		}
	case doTakeAll:
		for _, c := range w.clients {
			if err := c.takeAll(); err != nil {
				return err
			}
		}
	case doJoin:
		if len(w.clients) < mostClients {
			c := newClient(w, s)
			w.clients = append(w.clients, c)
			return c.comeBack()
		}
	case doVanish:
		if len(w.clients) > 0 {
			return w.clients[s.a%len(w.clients)].vanish()
		}
	case doReturn:
		if len(w.clients) > 0 {
			return w.clients[s.a%len(w.clients)].comeBack()
		}
	case doStorm:
		for range 1 + s.b%3 {
			for _, c := range w.clients {
				if err := errors.Join(c.vanish(), c.comeBack()); err != nil {
					return err
				}
			}
		}
	case doSleep:
		unit := []time.Duration{time.Millisecond, time.Millisecond, time.Second, time.Minute}[s.a%4]
		w.sleep(time.Duration(1+s.b%1000) * unit / 10)
	case doTrim:
		return w.trim(s.a % 20)
	case doBookmarks:
		cache.RequestBookmarks()
	case doLook:
		return w.look(s.a % 20)
	case doJump:
		w.clock.jump(s.a%100_000 - 50_000)
	case doRestart:
		w.figures.restarts++
		if err := w.end(); err != nil {
			return err
		}
		return w.start()
	default:
		w.fault(s)
	}
	return nil
}

// fault is what befalls the source.
func (w *world) fault(s step) {
	source := w.source
	at := source.Position()
	switch s.kind {
	case doCut:
		source.Cut([]error{nil, errBroken, watchcache.ErrExpired, watchcache.RetryAfter(errBroken, time.Second)}[s.a%4])
	case doFailLists:
		source.FailLists(1+s.a%5, errBroken)
	case doFailWatches:
		source.FailWatches(1+s.a%5, errBroken)
	case doFailListing:
		source.FailListing(s.a%10, errBroken)
	case doRepeat:
		if items := source.Items(); len(items) > 0 {
			source.RepeatKey(items[s.a%len(items)].Key)
		}
	case doInject: // none of which a cache may take
		source.Inject([]watchcache.SourceEvent[int]{
			watchcache.CommitEvent(watchcache.Commit[int]{Changes: []watchcache.Change[int]{{Key: "a", Object: -1}}}),
			watchcache.SyncedEvent[int](at),
			watchcache.CommitEvent(watchcache.Commit[int]{Revision: 1 << 62, Changes: []watchcache.Change[int]{{Object: -1}}}),
		}[s.a%3])
	case doHold:
		if w.release == nil {
			w.release = source.Hold()
		} else {
			w.letGo()
		}
	case doDelay:
		source.Delay(nil, time.Duration(s.a%3000)*time.Millisecond*time.Duration(s.b%2))
	case doCompact:
		source.Compact(below(at.Revision, s.a%20))
	case doRestore:
		w.heal()
		w.sleep(10 * time.Minute)
		if at.Revision < 2 {
			break
		}
		w.pasts++
		at.Revision, at.Part = max(1, below(at.Revision, 1+s.a%20)), 0
		items := source.Items()
		for i := range items {
			items[i].Revision = min(items[i].Revision, at.Revision)
			if i%3 == 0 {
				items[i].Object = w.object()
			}
		}
		// The cache has to notice before the source gets to where the cache is: then
		// nobody could see that this is another past.
		source.Restart(at, items...)
		w.sleep(10 * time.Minute)
	case doRenumber:
		source.Restart(watchcache.Position{Epoch: at.Epoch + "+", Revision: uint64(s.a % 50)}, source.Items()[:min(len(source.Items()), s.b%20)]...)
	}
}

var errBroken = errors.New("broken")

func below(revision uint64, by int) uint64 { return revision - min(revision, uint64(by)) }

// changes draws what a commit changes.
func (w *world) changes(s step) []watchcache.Change[int] {
	r := rand.New(rand.NewPCG(uint64(s.a), 0))
	n := s.b % 6
	if s.b%64 == 0 && w.config.bigCommits() {
		n = 20 + s.b%400
	}
	var changes []watchcache.Change[int]
	for range n {
		key := fmt.Sprintf("%c/%d", 'a'+r.IntN(3), r.IntN(w.config.keys))
		changes = append(changes, watchcache.Change[int]{Key: key, Object: w.object(), Delete: r.IntN(4) == 0})
	}
	return changes
}

func (w *world) trim(by int) error {
	p := w.process.cache
	at := p.Position()
	if by > 0 {
		at.Revision, at.Part = below(at.Revision, by), 0
	}
	before := p.Oldest()
	err := p.Trim(at)
	if err != nil && !errors.Is(err, watchcache.ErrNotReady) {
		return fmt.Errorf("trim before %v: %w", at, err)
	}
	if now := p.Oldest(); now.Revision < before.Revision && now.Epoch == before.Epoch {
		return fmt.Errorf("oldest went back from %v to %v", before, now)
	}
	return nil
}

// look reads the state, now and in the past.
func (w *world) look(back int) error {
	p := w.process
	if status, _ := p.cache.Status(); !status.Ready {
		return nil
	}
	now := p.cache.Snapshot()
	p.check.Snapshot(now)
	at := now.Position()
	past, err := p.cache.SnapshotAt(below(at.Revision, back))
	switch {
	case err == nil:
		p.check.Snapshot(past)
	case back == 0 || !errors.Is(err, watchcache.ErrExpired):
		return fmt.Errorf("the state %d before %v: %w", back, at, err)
	}
	stats := p.cache.Stats()
	if stats.History > max(w.config.capacity, w.mostEvents()) || stats.Watchers > len(w.clients) {
		return fmt.Errorf("the figures are beyond all limits: %+v", stats)
	}
	return nil
}

// mostEvents is how many events one commit may make: a relist may replace all.
func (w *world) mostEvents() int { return max(420, 2*3*w.config.keys) }

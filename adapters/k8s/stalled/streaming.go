package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s/store"
)

// policy is how a client is dealt with that stalls while it streams.
type policy struct {
	name   string
	cacher bool
	change func(size, *store.Config)
}

const (
	lag      = 100 // events, of the policies that have such a limit
	capacity = 128 // of the history that is overrun
	// between is the time between writes: more come than buffers hold, long before the
	// limit.
	between = 5 * time.Millisecond
)

func stallPolicy(p func(size) watchcache.StallPolicy) func(size, *store.Config) {
	return func(s size, c *store.Config) { c.Stall = p(s) }
}

var policies = []policy{
	{"cacher", true, func(size, *store.Config) {}},
	{"Evict, idle", false, stallPolicy(func(s size) watchcache.StallPolicy {
		return watchcache.Evict{StallLimits: watchcache.StallLimits{StreamIdle: s.limit}}
	})},
	{"Evict, lag", false, stallPolicy(func(size) watchcache.StallPolicy {
		return watchcache.Evict{StallLimits: watchcache.StallLimits{Lag: lag}}
	})},
	{"Resync, lag", false, stallPolicy(func(size) watchcache.StallPolicy {
		return watchcache.Resync{StallLimits: watchcache.StallLimits{Lag: lag}}
	})},
	{"Evict, overrun", false, func(_ size, c *store.Config) {
		c.Stall, c.Capacity = watchcache.Evict{}, capacity
	}},
}

// streamingResult is one run of a client that stalls while it streams.
type streamingResult struct {
	ended    time.Duration // when the cache had ended the watch
	freed    time.Duration // when no handler was in a write
	writes   int           // all, of which the client must hear
	first    int           // events of the first watch, those included that were in buffers
	second   int           // events of the second
	expired  bool          // the second was refused, and the state listed
	complete bool          // nothing was missed, nothing came twice
}

// stallStreaming lets a client follow live writes, stall, and come back from the last
// resource version that it has seen, when its watch has ended.
func stallStreaming(ctx context.Context, s size, p policy, http2 bool) (*streamingResult, error) {
	sc, err := open(ctx, s, arrangement{cacher: p.cacher, limited: true}, http2, func(c *store.Config) { p.change(s, c) })
	if err != nil {
		return nil, err
	}
	defer sc.Close()
	c, err := sc.client()
	if err != nil {
		return nil, err
	}
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(watchTimeout.Seconds()))})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	written := make(chan writes, 1)
	go func() { written <- sc.write(writing) }()
	var f follower
	f.last = list.ResourceVersion
	for range 10 {
		f.take(<-w.ResultChan())
	}
	r := &streamingResult{}
	if err := sc.untilEnded(ctx, r); err != nil {
		return nil, err
	}
	stopWriting()
	all := <-written
	if all.err != nil {
		return nil, all.err
	}
	r.writes = len(all.revisions)
	if err := f.drain(ctx, w, ""); err != nil {
		return nil, fmt.Errorf("the first watch: %w", err)
	}
	r.first = len(f.seen)
	err = f.resume(ctx, c, all.last())
	if apierrors.IsResourceExpired(err) {
		r.expired = true
		r.complete, err = isState(ctx, c, all)
	} else if err == nil {
		r.second = len(f.seen) - r.first
		r.complete = equal(f.seen, all.revisions)
	}
	return r, err
}

// writes are what was written, in the order of revisions.
type writes struct {
	revisions []string
	newest    map[string]string // resource versions, by name
	err       error
}

func (w *writes) last() string { return w.revisions[len(w.revisions)-1] }

// write writes until the context ends.
func (sc *scene) write(ctx context.Context) writes {
	all := writes{newest: map[string]string{}}
	c, err := sc.client()
	if err != nil {
		all.err = err
		return all
	}
	tick := time.NewTicker(between)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return all
		}
		// A write that has begun is not cancelled: it would not be known what came of it.
		written, err := c.Update(context.WithoutCancel(ctx), sc.object(i%sc.size.objects), metav1.UpdateOptions{})
		if err != nil {
			all.err = err
			return all
		}
		all.revisions = append(all.revisions, written.ResourceVersion)
		all.newest[written.Name] = written.ResourceVersion
	}
}

// untilEnded waits until the cache has ended the watch, and its handler is in no write.
func (sc *scene) untilEnded(ctx context.Context, r *streamingResult) error {
	began := time.Now()
	tick := time.NewTicker(min(100*time.Millisecond, sc.size.limit/20))
	defer tick.Stop()
	stalled := false
	for time.Since(began) < 4*sc.size.limit+patience {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		blocked := countWaiting().blocked > 0
		stalled = stalled || blocked
		if stalled && r.ended == 0 && sc.watches() == 0 {
			r.ended = time.Since(began)
		}
		if stalled && !blocked && r.ended > 0 {
			r.freed = time.Since(began)
			return nil
		}
	}
	return errors.New("the stalled watch was not ended")
}

// watches returns how many watches the cache has.
func (sc *scene) watches() int {
	if sc.Store() != nil {
		return sc.Store().CacheStats().Watchers
	}
	n := 0
	for _, stack := range stacks() {
		if stack.has("cacher.(*cacheWatcher).processInterval") {
			n++
		}
	}
	return n
}

// follower is a client that keeps what it has seen.
type follower struct {
	seen []string // resource versions
	last string
}

func (f *follower) take(ev watch.Event) {
	if object, ok := ev.Object.(*corev1.ConfigMap); ok {
		f.seen = append(f.seen, object.ResourceVersion)
		f.last = object.ResourceVersion
	}
}

// drain takes what comes up to a resource version, or with none to the end of the watch,
// which may be a broken connection.
func (f *follower) drain(ctx context.Context, w watch.Interface, upTo string) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for upTo == "" || f.last != upTo {
		select {
		case ev, open := <-w.ResultChan():
			switch {
			case !open && upTo == "":
				return nil
			case !open:
				return fmt.Errorf("it ended at resource version %s, and not at %s", f.last, upTo)
			case ev.Type == watch.Error && upTo == "":
				return nil
			case ev.Type == watch.Error:
				return apierrors.FromObject(ev.Object)
			}
			f.take(ev)
		case <-late.C:
			return fmt.Errorf("it is at resource version %s since %v, and should be at %q", f.last, patience, upTo)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// resume watches on from where the last watch ended.
func (f *follower) resume(ctx context.Context, c typed.ConfigMapInterface, upTo string) error {
	if f.last == upTo {
		return nil
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: f.last})
	if err != nil {
		return err
	}
	defer w.Stop()
	return f.drain(ctx, w, upTo)
}

// isState reports whether a list has what was written last.
func isState(ctx context.Context, c typed.ConfigMapInterface, all writes) (bool, error) {
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	found := 0
	for i := range list.Items {
		if newest, ok := all.newest[list.Items[i].Name]; ok {
			if list.Items[i].ResourceVersion != newest {
				return false, nil
			}
			found++
		}
	}
	return found == len(all.newest), nil
}

// equal reports whether two sequences of resource versions are the same, and ascend.
func equal(seen, written []string) bool {
	if len(seen) != len(written) {
		return false
	}
	last := uint64(0)
	for i := range seen {
		revision, err := strconv.ParseUint(seen[i], 10, 64)
		if err != nil || seen[i] != written[i] || revision <= last {
			return false
		}
		last = revision
	}
	return true
}

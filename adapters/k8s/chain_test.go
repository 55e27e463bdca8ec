package k8s

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// The tests here are of both directions at once: a cache, listed and watched as a
// server would be, feeds another cache, or an informer.

func configMap(key, text string) *corev1.ConfigMap {
	ns, name, _ := strings.Cut(key, "/")
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"colour": ns}},
		Data:       map[string]string{"text": text},
	}
}

func textOf(m *corev1.ConfigMap) string { return m.Data["text"] }

// line is a connection that can be cut.
type line struct {
	cache.ListerWatcherWithContext

	mu      sync.Mutex
	down    bool
	watches []watch.Interface
	lists   int
}

// List and Watch are for clients that have no context.
func (l *line) List(opts metav1.ListOptions) (out runtime.Object, err error) {
	return l.ListWithContext(context.Background(), opts)
}

func (l *line) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

func (l *line) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l.mu.Lock()
	down := l.down
	l.lists++
	l.mu.Unlock()
	if down {
		return nil, errors.New("no connection")
	}
	return l.ListerWatcherWithContext.ListWithContext(ctx, opts)
}

func (l *line) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.New("no connection")
	}
	w, err := l.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	if err == nil {
		l.watches = append(l.watches, w)
	}
	return w, err
}

func (l *line) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for _, w := range l.watches {
		w.Stop()
	}
	l.watches = nil
}

func TestConformanceOfAChain(t *testing.T) {
	watchcachetest.RunConformance(t, func(t testing.TB, opts watchcache.Options[*corev1.ConfigMap]) watchcachetest.Subject[*corev1.ConfigMap] {
		origin, err := watchcache.New(watchcache.Options[*corev1.ConfigMap]{FirstRevision: 2}) // 0 and 1 are before the first commit
		if err != nil {
			t.Fatal(err)
		}
		lw, err := NewListerWatcher(origin, ListerWatcherOptions[*corev1.ConfigMap]{BookmarkEvery: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l := &line{ListerWatcherWithContext: lw}
		opts.Mirror = true
		replica, err := watchcache.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		running.Go(func() { replica.Run(ctx, NewSource[*corev1.ConfigMap](l, SourceOptions[*corev1.ConfigMap]{})) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
			replica.Close()
			origin.Close()
		})
		return watchcachetest.Subject[*corev1.ConfigMap]{
			Cache:  replica,
			Encode: configMap,
			Decode: textOf,
			Single: true, // who is cut off within a commit of several keys misses the rest, with Kubernetes too
			Commit: func(changes ...watchcache.Change[*corev1.ConfigMap]) (uint64, error) {
				return origin.Apply(watchcache.Commit[*corev1.ConfigMap]{Changes: changes})
			},
			Cut: func() { l.set(true); l.set(false) },
			Forget: func(meanwhile func()) {
				l.set(true)
				meanwhile()
				if err := origin.Trim(origin.Position()); err != nil {
					t.Error(err)
				}
				l.set(false)
			},
		}
	})
}

// TestInformersFollow: an informer's store is the cache's state, whatever happens, with
// a watch that begins with the state and with lists.
func TestInformersFollow(t *testing.T) {
	for round := range 20 {
		t.Run(fmt.Sprintf("round=%d", round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { followWithInformers(t, rand.New(rand.NewPCG(uint64(round), 2))) })
		})
	}
}

func followWithInformers(t *testing.T, random *rand.Rand) {
	c, err := watchcache.New(watchcache.Options[*corev1.ConfigMap]{Capacity: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lw, err := NewListerWatcher(c, ListerWatcherOptions[*corev1.ConfigMap]{})
	if err != nil {
		t.Fatal(err)
	}
	write := func() {
		key := fmt.Sprintf("%s/%d", []string{"red", "blue"}[random.IntN(2)], random.IntN(10))
		if random.IntN(3) == 0 {
			if _, err := c.Delete(key); err != nil && !errors.Is(err, watchcache.ErrNotFound) {
				t.Error(err)
			}
			return
		}
		if _, err := c.Put(key, configMap(key, fmt.Sprint(random.Int()))); err != nil {
			t.Error(err)
		}
	}
	for range random.IntN(30) {
		write()
	}
	var running sync.WaitGroup
	stop := make(chan struct{})
	var lines []*line
	var informers []cache.SharedIndexInformer
	for _, only := range []string{"", "colour=red"} {
		for _, streams := range []bool{true, false} {
			l := &line{ListerWatcherWithContext: narrowed{lw, only}}
			var from cache.ListerWatcher = l
			if !streams {
				from = onlyLists{l}
			}
			informer := cache.NewSharedIndexInformer(from, &corev1.ConfigMap{}, 0, cache.Indexers{})
			// client-go's own handler waits by a clock that is not the bubble's.
			if err := informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
				t.Fatal(err)
			}
			running.Go(func() { informer.Run(stop) })
			lines, informers = append(lines, l), append(informers, informer)
		}
	}
	defer running.Wait()
	defer close(stop)
	for range 30 {
		for range random.IntN(40) {
			write()
			if random.IntN(4) == 0 {
				synctest.Wait()
			}
		}
		for _, l := range lines {
			if random.IntN(3) == 0 {
				l.set(true)
				for range random.IntN(40) { // more than history has, now and then
					write()
				}
				l.set(false)
			}
		}
		time.Sleep(3 * time.Minute) // the longest that client-go waits before it tries again
		synctest.Wait()
		for i, informer := range informers {
			only := lines[i].ListerWatcherWithContext.(narrowed).labels
			want := map[string]*corev1.ConfigMap{}
			for item := range c.Snapshot().All() {
				if only == "" || strings.HasPrefix(item.Key, "red/") {
					want[item.Key] = item.Object
				}
			}
			got := map[string]*corev1.ConfigMap{}
			for _, key := range informer.GetStore().ListKeys() {
				object, _, _ := informer.GetStore().GetByKey(key)
				got[key] = object.(*corev1.ConfigMap)
				if w := want[key]; w == nil || !reflect.DeepEqual(w.Data, got[key].Data) {
					t.Fatalf("informer %d (synced to %s, cache at %v) has %q as of %s, %v, want %v", i, informer.LastSyncResourceVersion(), c.Position(), key, got[key].ResourceVersion, got[key].Data, w)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("informer %d has %d objects, want %d", i, len(got), len(want))
			}
		}
	}
}

// narrowed asks for some labels only.
type narrowed struct {
	cache.ListerWatcherWithContext
	labels string
}

func (n narrowed) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.LabelSelector = n.labels
	return n.ListerWatcherWithContext.ListWithContext(ctx, opts)
}

func (n narrowed) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.LabelSelector = n.labels
	return n.ListerWatcherWithContext.WatchWithContext(ctx, opts)
}

// onlyLists has clients list.
type onlyLists struct{ *line }

func (onlyLists) IsWatchListSemanticsUnSupported() bool { return true }

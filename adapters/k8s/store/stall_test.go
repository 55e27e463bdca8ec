package store_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s/store"
)

// TestStalledWatchIsEnded: the seed's fault. Who asks for the state and stops reading is
// ended, what it held is let go, and who reads slowly gets everything.
func TestStalledWatchIsEnded(t *testing.T) {
	limit := time.Second
	f := setup(t, ours, withConfig(func(c *store.Config) {
		c.Stall = watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: limit}}
	}))
	const objects = 60
	for i := range objects {
		create(t, f, pod("ns", fmt.Sprintf("pod%02d", i), ""))
	}
	yes := true
	initial := storage.ListOptions{ResourceVersion: "0", SendInitialEvents: &yes, Recursive: true}
	initial.Predicate.AllowWatchBookmarks = true
	var stalled []watch.Interface
	for range 20 {
		w := watching(t, f, t.Context(), prefix, initial)
		next(t, w)
		stalled = append(stalled, w)
	}
	slow := watching(t, f, t.Context(), prefix, initial)
	every := time.NewTicker(limit / 10)
	defer every.Stop()
	for i := range objects {
		if i < objects-16 { // what is left then is in the channel
			<-every.C
		}
		if ev := next(t, slow); ev.Type != watch.Added {
			t.Fatalf("event %d is %s %v", i, ev.Type, ev.Object)
		}
	}
	if ev := next(t, slow); ev.Type != watch.Bookmark {
		t.Fatalf("after the state comes %s", ev.Type)
	}
	for i, w := range stalled {
		left := 0
		for ev := range w.ResultChan() {
			if left++; ev.Type != watch.Added || left > 16 {
				t.Fatalf("stalled watch %d still has %d events, now %s", i, left, ev.Type)
			}
		}
	}
	st := f.subjectStore.(*store.Store)
	if open := len(slices.Collect(st.Watchers())); open != 1 {
		t.Errorf("%d watches are open, want the slow one", open)
	}
	if got := st.CacheStats().Endings.Stalled; got != 20 {
		t.Errorf("%d watches ended as stalled, want 20", got)
	}
}

// TestStalledWatchLetsTheStateGo: the state that a stalled watch was to get is collectable
// when the watch has been ended, although its client has neither read nor stopped.
func TestStalledWatchLetsTheStateGo(t *testing.T) {
	const objects = 60
	var first alive
	f := setup(t, ours, withConfig(func(c *store.Config) {
		c.Stall = watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: 5 * time.Second}}
		c.Capacity = 16
		keyFunc := c.KeyFunc
		c.KeyFunc = func(o k8sruntime.Object) (string, error) {
			first.add(o.(*example.Pod)) // which is what is kept
			return keyFunc(o)
		}
	}))
	for i := range objects {
		create(t, f, pod("ns", fmt.Sprintf("pod%02d", i), ""))
	}
	yes := true
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", SendInitialEvents: &yes, Recursive: true})
	next(t, w)
	first.enough()
	for _, node := range []string{"a", "b"} { // the second time for what history remembers of the first
		for i := range objects {
			update(t, f, pod("ns", fmt.Sprintf("pod%02d", i), ""), func(p *example.Pod) { p.Spec.NodeName = node })
		}
	}
	st := f.subjectStore.(*store.Store)
	if held, ended := first.count(), st.CacheStats().Endings.Stalled; held < objects/2 || ended != 0 {
		t.Errorf("%d objects are held, %d watches have ended: want the state to be held", held, ended)
	}
	wait(t, "the watch to be ended", func() bool { return st.CacheStats().Endings.Stalled == 1 })
	wait(t, "all but what is in the channel to go", func() bool { return first.count() <= cap(w.ResultChan())+1 })
	for range w.ResultChan() { // ends
	}
	wait(t, "the rest to go", func() bool { return first.count() == 0 })
}

// TestResyncIsEnded: there is no event for a Reset, so that whoever is to be resynced is ended.
func TestResyncIsEnded(t *testing.T) {
	f := setup(t, ours, withConfig(func(c *store.Config) {
		c.Stall = watchcache.Resync{StallLimits: watchcache.StallLimits{InitialIdle: time.Second}}
	}))
	for i := range 60 {
		create(t, f, pod("ns", fmt.Sprintf("pod%02d", i), ""))
	}
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Recursive: true})
	next(t, w)
	st := f.subjectStore.(*store.Store)
	wait(t, "the watch to be ended", func() bool { return st.CacheStats().Endings.Stalled == 1 })
	for range w.ResultChan() { // ends
	}
}

// alive counts which of some objects have not been collected.
type alive struct {
	mu   sync.Mutex
	full bool
	pods []weak.Pointer[example.Pod]
}

func (a *alive) add(p *example.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.full {
		a.pods = append(a.pods, weak.Make(p))
	}
}

// enough has no more objects counted.
func (a *alive) enough() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.full = true
}

func (a *alive) count() int {
	runtime.GC()
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, p := range a.pods {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

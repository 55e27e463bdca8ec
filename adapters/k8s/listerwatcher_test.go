package k8s

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watchcache/watchcache"
)

// serving is a cache with three objects, at revision 3, and what serves it.
func serving(t *testing.T, opts ListerWatcherOptions[*corev1.ConfigMap]) (*watchcache.Cache[*corev1.ConfigMap], *ListerWatcher[*corev1.ConfigMap]) {
	t.Helper()
	c, err := watchcache.New(watchcache.Options[*corev1.ConfigMap]{Capacity: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"red/1", "red/2", "blue/1"} {
		if _, err := c.Put(key, configMap(key, key)); err != nil {
			t.Fatal(err)
		}
	}
	lw, err := NewListerWatcher(c, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c, lw
}

// heard is an event as text.
func heard(ev watch.Event) string {
	if ev.Type == watch.Error {
		return "ERROR " + string(ev.Object.(*metav1.Status).Reason)
	}
	header, err := meta.Accessor(ev.Object)
	if err != nil {
		return err.Error()
	}
	text := string(ev.Type) + " " + header.GetName() + "@" + header.GetResourceVersion()
	if _, ok := header.GetAnnotations()[metav1.InitialEventsAnnotationKey]; ok {
		text += " end of initial events"
	}
	return text
}

func expect(t *testing.T, w watch.Interface, want ...string) {
	t.Helper()
	for _, want := range want {
		ev, open := <-w.ResultChan()
		if got := heard(ev); !open || got != want {
			t.Fatalf("heard %q (open %v), want %q", got, open, want)
		}
	}
}

func expectEnd(t *testing.T, w watch.Interface) {
	t.Helper()
	if ev, open := <-w.ResultChan(); open {
		t.Errorf("heard %q, want the end", heard(ev))
	}
}

func TestWhereWatchesBegin(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name string
		opts metav1.ListOptions
		want []string
	}{
		{"any", metav1.ListOptions{ResourceVersion: "0"}, []string{"ADDED 1@3", "ADDED 1@1", "ADDED 2@2"}},
		{"any, and bookmarks", metav1.ListOptions{ResourceVersion: "0", AllowWatchBookmarks: true}, []string{"ADDED 1@3", "ADDED 1@1", "ADDED 2@2"}},
		{"newest", metav1.ListOptions{}, []string{"ADDED 1@3", "ADDED 1@1", "ADDED 2@2"}},
		{"newest, without the state", metav1.ListOptions{SendInitialEvents: &no}, nil},
		{"after", metav1.ListOptions{ResourceVersion: "2"}, []string{"ADDED 1@3"}},
		{"with initial events", metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			[]string{"ADDED 1@3", "ADDED 1@1", "ADDED 2@2", "BOOKMARK @3 end of initial events"}},
		{"with initial events, and no bookmarks", metav1.ListOptions{SendInitialEvents: &yes}, []string{"ADDED 1@3", "ADDED 1@1", "ADDED 2@2"}},
		{"a label", metav1.ListOptions{ResourceVersion: "0", LabelSelector: "colour=blue"}, []string{"ADDED 1@3"}},
		{"a name", metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name=2"}, []string{"ADDED 2@2"}},
		{"a namespace", metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.namespace!=blue"}, []string{"ADDED 1@1", "ADDED 2@2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{})
			defer cache.Close()
			w, err := lw.Watch(c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			expect(t, w, c.want...)
			both := configMap("red/2", "new")
			both.Labels["colour"] = "blue" // both labels' watches see it
			both.Namespace = "red"
			if _, err := cache.Put("red/2", both); err != nil {
				t.Fatal(err)
			}
			as := "MODIFIED 2@4"
			if c.name == "a label" {
				as = "ADDED 2@4"
			}
			expect(t, w, as)
		})
	}
}

// TestDeletionsCarryTheirRevision, in an object of their own: the one that was stored
// is everybody's.
func TestDeletionsCarryTheirRevision(t *testing.T) {
	c, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{})
	defer c.Close()
	stored := at("4", configMap("red/3", "x"))
	c.Put("red/3", stored)
	w, err := lw.Watch(metav1.ListOptions{ResourceVersion: "3"})
	if err != nil {
		t.Fatal(err)
	}
	if ev := <-w.ResultChan(); ev.Object != runtime.Object(stored) {
		t.Error("an object that has its revision was copied")
	}
	c.Delete("red/3")
	expect(t, w, "DELETED 3@5")
	if stored.ResourceVersion != "4" {
		t.Errorf("the stored object was changed: it is of %s", stored.ResourceVersion)
	}
	w.Stop()
	w.Stop()
	expectEnd(t, w)
}

func TestHowWatchesOfACacheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{BookmarkEvery: 20 * time.Second})
		stall := watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: 10 * time.Second}}
		narrow, err := NewListerWatcher(c, ListerWatcherOptions[*corev1.ConfigMap]{Select: watchcache.WatchOptions[*corev1.ConfigMap]{Prefix: "many/", Stall: stall, Name: "slow"}})
		if err != nil {
			t.Fatal(err)
		}
		// A timeout, and bookmarks until then, about what was not selected.
		seconds := int64(50)
		w, err := lw.Watch(metav1.ListOptions{ResourceVersion: "3", AllowWatchBookmarks: true, TimeoutSeconds: &seconds, LabelSelector: "colour=green"})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		c.Put("red/1", configMap("red/1", "y"))
		expect(t, w, "BOOKMARK @4")
		c.Put("red/1", configMap("red/1", "z"))
		expect(t, w, "BOOKMARK @5")
		if passed := time.Since(begin); passed != 40*time.Second {
			t.Errorf("two bookmarks took %v, want 40 s", passed)
		}
		for range w.ResultChan() {
		}
		if passed := time.Since(begin); passed != 50*time.Second {
			t.Errorf("the watch ended after %v, want 50 s", passed)
		}
		// The context's end, which is no error that is told.
		ctx, cancel := context.WithCancel(t.Context())
		if w, err = lw.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: "5"}); err != nil {
			t.Fatal(err)
		}
		cancel()
		expectEnd(t, w)
		// A client that stops reading, of more than the channel holds.
		for i := range 100 {
			key := "many/" + string(rune('A'+i))
			c.Put(key, configMap(key, "x"))
		}
		if w, err = narrow.Watch(metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		<-w.ResultChan()
		if s := c.Stats(); s.Watchers != 1 {
			t.Errorf("there are %d watchers, want 1", s.Watchers)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := c.Stats(); s.Watchers != 0 {
			t.Errorf("a client that does not read for 10 s has its watcher still: %+v", s)
		}
		n := 0
		for ev := range w.ResultChan() {
			if n++; ev.Type != watch.Added {
				t.Errorf("heard %q", heard(ev))
			}
		}
		if n != resultBuffer {
			t.Errorf("%d events were left in the channel, want %d", n, resultBuffer)
		}
		// A position that history has dropped.
		if _, err := lw.Watch(metav1.ListOptions{ResourceVersion: "2"}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from a dropped revision is %v", err)
		}
		// One that is dropped under the watch, by a trim.
		key := "red/1"
		if w, err = lw.Watch(metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the channel is full now
		for range 20 {
			c.Put(key, configMap(key, "y"))
		}
		synctest.Wait()
		for range w.ResultChan() {
		}
		// The cache's end.
		if w, err = lw.Watch(metav1.ListOptions{SendInitialEvents: new(bool)}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		expectEnd(t, w)
		if _, err := lw.Watch(metav1.ListOptions{}); !apierrors.IsInternalError(err) {
			t.Errorf("a watch of a closed cache is %v", err)
		}
	})
}

func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{})
		defer c.Close()
		go func() {
			time.Sleep(time.Minute)
			c.Put("red/4", configMap("red/4", "x"))
		}()
		object, err := lw.List(metav1.ListOptions{ResourceVersion: "4", LabelSelector: "colour=red", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		list := object.(*internalversion.List)
		var names []string
		for _, item := range list.Items {
			names = append(names, item.(*corev1.ConfigMap).Name)
		}
		if got := strings.Join(names, " "); list.ResourceVersion != "4" || list.Continue != "" || got != "1 2 4" {
			t.Errorf("the list at %s has %q, want 1 2 4 at 4", list.ResourceVersion, got)
		}
		for _, bad := range []struct {
			opts metav1.ListOptions
			is   func(error) bool
		}{
			{metav1.ListOptions{ResourceVersion: "x"}, apierrors.IsBadRequest},
			{metav1.ListOptions{ResourceVersion: "3", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsBadRequest},
			{metav1.ListOptions{LabelSelector: "a b"}, apierrors.IsBadRequest},
			{metav1.ListOptions{FieldSelector: "metadata.name"}, apierrors.IsBadRequest},
			{metav1.ListOptions{FieldSelector: "spec.nodeName=a"}, apierrors.IsBadRequest},
			{metav1.ListOptions{Continue: "token"}, apierrors.IsResourceExpired},
		} {
			if _, err := lw.List(bad.opts); !bad.is(err) {
				t.Errorf("a list with %+v is %v", bad.opts, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lw.ListWithContext(ctx, metav1.ListOptions{ResourceVersion: "99"}); !apierrors.IsTimeout(err) {
			t.Errorf("a list of the future is %v", err)
		}
	})
}

func TestListerWatcherOptions(t *testing.T) {
	texts, err := watchcache.New(watchcache.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer texts.Close()
	object := func(key, text string) (runtime.Object, error) {
		if text == "bad" {
			return nil, errors.New("it is bad")
		}
		return configMap(key, text), nil
	}
	empty := func() runtime.Object { return &corev1.ConfigMap{} }
	for _, opts := range []ListerWatcherOptions[string]{{}, {Empty: empty}, {Object: object}} {
		if _, err := NewListerWatcher(texts, opts); !errors.Is(err, watchcache.ErrInvalidOption) {
			t.Errorf("%+v is %v, want an invalid option", opts, err)
		}
	}
	lw, err := NewListerWatcher(texts, ListerWatcherOptions[string]{Object: object, Empty: empty,
		Select: watchcache.WatchOptions[string]{Prefix: "red/", Filter: func(_, text string) bool { return text != "hidden" }}})
	if err != nil {
		t.Fatal(err)
	}
	texts.Put("red/1", "x")
	texts.Put("red/2", "hidden")
	texts.Put("blue/1", "x")
	yes := true
	w, err := lw.Watch(metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, LabelSelector: "colour"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, w, "ADDED 1@1", "BOOKMARK @3 end of initial events")
	texts.Put("red/3", "bad")
	expect(t, w, "ERROR InternalError")
	expectEnd(t, w)
	if _, err := lw.List(metav1.ListOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("a list with an object that cannot be made is %v", err)
	}
}

// TestAClientMayBeAhead: it has written, and the cache has not heard of it yet.
func TestAClientMayBeAhead(t *testing.T) {
	c, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{})
	defer c.Close()
	w, err := lw.Watch(metav1.ListOptions{ResourceVersion: "5"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for range 3 {
		c.Put("red/1", configMap("red/1", "y"))
	}
	expect(t, w, "MODIFIED 1@6")
}

// TestWhoLeavesIsToldAsItWas: an object that leaves the selection is deleted as it was when it
// was selected, at the revision at which it left.
func TestWhoLeavesIsToldAsItWas(t *testing.T) {
	c, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{})
	defer c.Close()
	w, err := lw.Watch(metav1.ListOptions{ResourceVersion: "3", LabelSelector: "colour=blue"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	green := configMap("blue/1", "new")
	green.Labels = map[string]string{"colour": "green"}
	if _, err := c.Put("blue/1", green); err != nil {
		t.Fatal(err)
	}
	ev := <-w.ResultChan()
	if got := ev.Object.(*corev1.ConfigMap); ev.Type != watch.Deleted || got.Labels["colour"] != "blue" || got.ResourceVersion != "4" {
		t.Errorf("%s with colour %q at %s, want DELETED blue at 4", ev.Type, got.Labels["colour"], got.ResourceVersion)
	}
}

// TestNoInitialEventsFromAny: who wants no initial events gets none, at any resource version.
func TestNoInitialEventsFromAny(t *testing.T) {
	for _, from := range []string{"", "0"} {
		c, lw := serving(t, ListerWatcherOptions[*corev1.ConfigMap]{})
		defer c.Close()
		w, err := lw.Watch(metav1.ListOptions{ResourceVersion: from, SendInitialEvents: new(bool), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if _, err := c.Put("red/3", configMap("red/3", "later")); err != nil {
			t.Fatal(err)
		}
		expect(t, w, "ADDED 3@4")
	}
}

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/watchcache/watchcache/adapters/k8s/store"
)

func pod(namespace, name, node string) *example.Pod {
	return &example.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       example.PodSpec{NodeName: node},
	}
}

func keyOf(p *example.Pod) string { return prefix + p.Namespace + "/" + p.Name }

// create stores a pod and waits until the subject's cache has it.
func create(t testing.TB, f *fixture, p *example.Pod) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := (creator{f}).Create(t.Context(), keyOf(p), p, out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

func update(t testing.TB, f *fixture, p *example.Pod, change func(*example.Pod)) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	err := f.GuaranteedUpdate(t.Context(), keyOf(p), out, false, nil, storage.SimpleUpdate(func(o k8sruntime.Object) (k8sruntime.Object, error) {
		changed := o.(*example.Pod)
		change(changed)
		return changed, nil
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func remove(t testing.TB, f *fixture, p *example.Pod) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := f.Delete(t.Context(), keyOf(p), out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return out
}

func watching(t testing.TB, f *fixture, ctx context.Context, key string, opts storage.ListOptions) watch.Interface {
	t.Helper()
	w, err := f.Watch(ctx, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next takes an event; an object that is encoded once comes as itself.
func next(t testing.TB, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case ev, open := <-w.ResultChan():
		if !open {
			t.Fatal("the watch is closed")
		}
		if cacheable, ok := ev.Object.(k8sruntime.CacheableObject); ok {
			ev.Object = cacheable.GetObject()
		}
		return ev
	case <-time.After(30 * time.Second):
		t.Fatal("no event within 30 s")
	}
	panic("unreachable")
}

// expectEvent takes an event of a type and a pod, and returns the pod.
func expectEvent(t testing.TB, w watch.Interface, as watch.EventType, p *example.Pod) *example.Pod {
	t.Helper()
	ev := next(t, w)
	got, ok := ev.Object.(*example.Pod)
	if !ok || ev.Type != as || got.Name != p.Name || got.ResourceVersion != p.ResourceVersion {
		t.Fatalf("took %s of %#v, want %s of %s at %s", ev.Type, ev.Object, as, p.Name, p.ResourceVersion)
	}
	return got
}

// TestEtcdSeesOneWatch: whatever clients ask for, and however many they are.
func TestEtcdSeesOneWatch(t *testing.T) {
	f := setup(t, ours, indexed)
	for i := range 20 {
		create(t, f, pod(fmt.Sprint("ns", i%4), fmt.Sprint("pod", i), fmt.Sprint("node", i%3)))
	}
	last := create(t, f, pod("ns0", "last", ""))
	lists, watches := f.below.lists.Load(), f.below.watches.Load()
	ask := []storage.ListOptions{
		{ResourceVersion: "0"},
		{ResourceVersion: ""},
		{ResourceVersion: last.ResourceVersion},
		{ResourceVersion: last.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{ResourceVersion: last.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
	}
	yes, no := true, false
	start := []storage.ListOptions{
		{ResourceVersion: "0"}, {}, {ResourceVersion: last.ResourceVersion},
		{SendInitialEvents: &yes}, {ResourceVersion: "0", SendInitialEvents: &yes}, {SendInitialEvents: &no},
	}
	var clients sync.WaitGroup
	errs := make(chan error, 1000)
	for i := range 1000 {
		clients.Go(func() {
			key := prefix
			if i%2 == 0 {
				key += "ns1/"
			}
			opts := ask[i%len(ask)]
			opts.Predicate, opts.Recursive = storage.Everything, true
			if i%3 == 0 {
				opts.Predicate.Limit = 5
			}
			list := &example.PodList{}
			if err := f.GetList(t.Context(), key, opts, list); err != nil {
				errs <- fmt.Errorf("list %d: %w", i, err)
				return
			}
			if list.Continue != "" {
				opts = storage.ListOptions{Predicate: storage.Everything, Recursive: true}
				opts.Predicate.Continue = list.Continue
				if err := f.GetList(t.Context(), key, opts, list); err != nil {
					errs <- fmt.Errorf("the rest of list %d: %w", i, err)
					return
				}
			}
			opts = start[i%len(start)]
			opts.Predicate, opts.Recursive = storage.Everything, true
			opts.Predicate.AllowWatchBookmarks = true
			w, err := f.Watch(t.Context(), key, opts)
			if err != nil {
				errs <- fmt.Errorf("watch %d: %w", i, err)
				return
			}
			w.Stop()
			for ev := range w.ResultChan() {
				if ev.Type == watch.Error {
					errs <- fmt.Errorf("watch %d: %v", i, ev.Object)
					return
				}
			}
		})
	}
	clients.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if got := f.below.lists.Load() - lists; got != 0 {
		t.Errorf("1000 clients made etcd list %d times", got)
	}
	if got := f.below.watches.Load(); got != watches || got != 1 {
		t.Errorf("etcd had %d watches and has had %d, want 1", watches, got)
	}
}

// TestSelectionsEnterAndLeave: of a field that is indexed, and of one that is not.
func TestSelectionsEnterAndLeave(t *testing.T) {
	f := setup(t, ours, indexed)
	for _, indexFields := range [][]string{{"spec.nodeName"}, nil} {
		p := create(t, f, pod("ns", fmt.Sprint("mover", len(indexFields)), "elsewhere"))
		opts := storage.ListOptions{ResourceVersion: p.ResourceVersion, Recursive: true}
		opts.Predicate = storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.OneTermEqualSelector("spec.nodeName", "here"),
			GetAttrs: podAttrs, IndexFields: indexFields,
		}
		w := watching(t, f, t.Context(), prefix, opts)
		in := update(t, f, p, func(p *example.Pod) { p.Spec.NodeName = "here" })
		expectEvent(t, w, watch.Added, in)
		changed := update(t, f, p, func(p *example.Pod) { p.Labels = map[string]string{"app": "changed"} })
		expectEvent(t, w, watch.Modified, changed)
		out := update(t, f, p, func(p *example.Pod) { p.Spec.NodeName = "elsewhere" })
		if last := expectEvent(t, w, watch.Deleted, out); last.Spec.NodeName != "here" {
			t.Errorf("who left is told as it is now, on %q, and not as it was", last.Spec.NodeName)
		}
		back := update(t, f, p, func(p *example.Pod) { p.Spec.NodeName = "here" })
		expectEvent(t, w, watch.Added, back)
		remove(t, f, p)
		if ev := next(t, w); ev.Type != watch.Deleted || ev.Object.(*example.Pod).ResourceVersion <= back.ResourceVersion {
			t.Errorf("the deletion is told as %s at %s, after %s", ev.Type, ev.Object.(*example.Pod).ResourceVersion, back.ResourceVersion)
		}
	}
}

// TestSelectedWatchesSleep: a change on one node is not even looked at by who watches
// another.
func TestSelectedWatchesSleep(t *testing.T) {
	f := setup(t, ours, indexed)
	p := create(t, f, pod("ns", "p", "a"))
	selector := &counting{Selector: fields.OneTermEqualSelector("spec.nodeName", "b")}
	opts := storage.ListOptions{ResourceVersion: p.ResourceVersion, Recursive: true}
	opts.Predicate = storage.SelectionPredicate{
		Label: labels.Everything(), Field: selector, GetAttrs: podAttrs, IndexFields: []string{"spec.nodeName"},
	}
	w := watching(t, f, t.Context(), prefix, opts)
	for i := range 20 {
		create(t, f, pod("ns", fmt.Sprint("elsewhere", i), "a"))
	}
	on := create(t, f, pod("ns", "q", "b"))
	expectEvent(t, w, watch.Added, on)
	if got := selector.asked.Load(); got != 1 {
		t.Errorf("the selector was asked %d times, want once, about the one change on its node", got)
	}
}

// counting counts how often a selector is asked.
type counting struct {
	fields.Selector
	asked atomic.Int64
}

func (c *counting) Matches(of fields.Fields) bool {
	c.asked.Add(1)
	return c.Selector.Matches(of)
}

// TestObjectsAreTheClients: what a client does to what it got is nobody else's.
func TestObjectsAreTheClients(t *testing.T) {
	f := setup(t, ours)
	p := create(t, f, pod("ns", "p", "a"))
	one := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Recursive: true})
	two := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Recursive: true})
	first := (<-one.ResultChan()).Object.(interface {
		metav1.Object
		k8sruntime.CacheableObject
	})
	first.GetLabels()["app"] = "scribbled"
	first.SetAnnotations(map[string]string{"mine": "yes"})
	first.GetObject().(*example.Pod).Labels["app"] = "scribbled"
	if got := first.GetObject().(*example.Pod); got.Annotations["mine"] != "yes" || got.Labels["app"] != "p" {
		t.Errorf("the client's object is %v %v", got.Annotations, got.Labels)
	}
	if got := expectEvent(t, two, watch.Added, p); got.Labels["app"] != "p" || got.Annotations["mine"] != "" {
		t.Errorf("another client got %v %v", got.Labels, got.Annotations)
	}
	read, list := &example.Pod{}, &example.PodList{}
	reads := func() (*example.Pod, *example.Pod) {
		if err := f.Get(t.Context(), keyOf(p), storage.GetOptions{ResourceVersion: "0"}, read); err != nil {
			t.Fatal(err)
		}
		if err := f.GetList(t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true}, list); err != nil {
			t.Fatal(err)
		}
		return read, &list.Items[0]
	}
	a, b := reads()
	a.Labels["app"], b.Labels["app"] = "scribbled", "scribbled"
	if a, b = reads(); a.Labels["app"] != "p" || b.Labels["app"] != "p" {
		t.Errorf("what a client changed came back: %v %v", a.Labels, b.Labels)
	}
}

// TestEncodedOnce: for all clients, as long as one of them still has it; nothing is kept
// for an object that nobody is being sent.
func TestEncodedOnce(t *testing.T) {
	f := setup(t, ours)
	create(t, f, pod("ns", "p", "a"))
	type cacheable = k8sruntime.CacheableObject
	take := func() cacheable {
		w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Recursive: true})
		return (<-w.ResultChan()).Object.(cacheable)
	}
	encodings := 0
	encode := func(_ k8sruntime.Object, w io.Writer) error {
		encodings++
		_, err := w.Write([]byte("encoded"))
		return err
	}
	encoded := func(o cacheable, id k8sruntime.Identifier) string {
		var b bytes.Buffer
		if err := o.CacheEncode(id, encode, &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	one, two := take(), take()
	for _, o := range []cacheable{one, two} {
		if got := encoded(o, "json"); got != "encoded" {
			t.Errorf("encoded as %q", got)
		}
	}
	if encodings != 1 {
		t.Errorf("two clients took %d encodings", encodings)
	}
	encoded(two, "protobuf")
	if encodings != 2 {
		t.Errorf("another format took %d", encodings-1)
	}
	two.(metav1.Object).SetName("other")
	encoded(two, "json")
	if encodings != 3 {
		t.Error("what a client changed is what was encoded before")
	}
	broken := errors.New("the encoder is broken")
	if err := one.CacheEncode("broken", func(k8sruntime.Object, io.Writer) error { return broken }, io.Discard); !errors.Is(err, broken) {
		t.Errorf("the encoder's error came as %v", err)
	}
	func() {
		defer func() { recover() }()
		one.CacheEncode("panics", func(k8sruntime.Object, io.Writer) error { panic("encoder") }, io.Discard)
	}()
	if err := one.CacheEncode("panics", encode, io.Discard); err == nil {
		t.Error("after an encoder has panicked, others get nothing, and no error")
	}

	one, two = nil, nil
	before := encodings
	wait(t, "the encodings to go", func() bool {
		runtime.GC()
		encoded(take(), "json")
		return encodings > before
	})
}

// TestNotReady: who asks before there is a state.
func TestNotReady(t *testing.T) {
	f := setup(t, ours)
	create(t, f, pod("ns", "p", ""))
	blocked := make(chan struct{})
	st, err := store.New(store.Config{
		Storage: blocking{f.below, blocked}, ResourcePrefix: prefix, GetAttrs: podAttrs, NewFunc: newPod, NewListFunc: newPodList,
		KeyFunc: func(o k8sruntime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Stop()
	if err := st.ReadinessCheck(); !errors.Is(err, storage.ErrStorageNotReady) {
		t.Errorf("ReadinessCheck: %v", err)
	}
	if err := st.Get(t.Context(), prefix+"ns/p", storage.GetOptions{ResourceVersion: "0"}, newPod()); err != nil {
		t.Errorf("Get does not go to etcd: %v", err)
	}
	list := func(limit int64, field fields.Selector) error {
		opts := storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true}
		opts.Predicate.Limit, opts.Predicate.Field = limit, field
		return st.GetList(t.Context(), prefix, opts, newPodList())
	}
	if err := list(0, fields.Everything()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a list: %v, want 429", err)
	} else if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds < 1 {
		t.Errorf("a list: %v, without Retry-After", err)
	}
	if err := list(1, fields.OneTermEqualSelector("spec.nodeName", "x")); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a list with limit and selector: %v, want 429", err)
	}
	if _, err := st.Watch(t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a watch: %v, want 429", err)
	}
	close(blocked)
	if err := st.Wait(t.Context()); err != nil || st.ReadinessCheck() != nil {
		t.Fatal(err, st.ReadinessCheck())
	}
	if err := list(0, fields.Everything()); err != nil {
		t.Error(err)
	}
	st.Stop()
	if err := st.ReadinessCheck(); !errors.Is(err, storage.ErrStorageNotReady) {
		t.Errorf("ReadinessCheck when it has stopped: %v", err)
	}
}

// blocking lists when it is let.
type blocking struct {
	storage.Interface
	until <-chan struct{}
}

func (b blocking) GetList(ctx context.Context, key string, opts storage.ListOptions, list k8sruntime.Object) error {
	select {
	case <-b.until:
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.Interface.GetList(ctx, key, opts, list)
}

// EnableResourceSizeEstimation is the other store's.
func (b blocking) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// TestHistoryExpires: what a relist may have missed answers 410, in a watch and in a list
// that etcd has compacted too; watches that were open are closed.
func TestHistoryExpires(t *testing.T) {
	f := setup(t, ours)
	p := create(t, f, pod("ns", "p", ""))
	open := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: p.ResourceVersion, Recursive: true})
	q := create(t, f, pod("ns", "q", ""))
	expectEvent(t, open, watch.Added, q)
	f.compactWatch(t.Context(), t, q.ResourceVersion)
	if ev, isOpen := <-open.ResultChan(); isOpen {
		t.Errorf("a watch that was open gets %s %v", ev.Type, ev.Object)
	}
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: p.ResourceVersion, Recursive: true})
	ev := next(t, w)
	if err := apierrors.FromObject(ev.Object); ev.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before gets %s %v, want 410", ev.Type, ev.Object)
	}
	r := create(t, f, pod("ns", "r", ""))
	f.compactStore(t.Context(), t, r.ResourceVersion)
	err := f.GetList(t.Context(), prefix, storage.ListOptions{ResourceVersion: p.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact, Predicate: storage.Everything, Recursive: true}, newPodList())
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("an exact list: %v, want 410", err)
	}
}

// TestExactListsAreNotBelowTheCompaction: although history has them, no other server would.
func TestExactListsAreNotBelowTheCompaction(t *testing.T) {
	f := setup(t, ours)
	p := create(t, f, pod("ns", "p", ""))
	q := create(t, f, pod("ns", "q", ""))
	exact := storage.ListOptions{ResourceVersion: p.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		Predicate: storage.Everything, Recursive: true}
	list := &example.PodList{}
	if err := f.GetList(t.Context(), prefix, exact, list); err != nil || len(list.Items) != 1 {
		t.Fatalf("before the compaction: %v, %d pods", err, len(list.Items))
	}
	f.compactStore(t.Context(), t, q.ResourceVersion)
	if err := f.GetList(t.Context(), prefix, exact, list); !apierrors.IsResourceExpired(err) {
		t.Errorf("after it: %v, want 410", err)
	}
}

// TestAheadOfTheCache: a client that has just written, and is ahead, gets what comes after.
func TestAheadOfTheCache(t *testing.T) {
	f := setup(t, ours)
	p := create(t, f, pod("ns", "p", ""))
	ahead := update(t, f, p, func(p *example.Pod) { p.Spec.NodeName = "a" })
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: ahead.ResourceVersion, Recursive: true})
	later := update(t, f, p, func(p *example.Pod) { p.Spec.NodeName = "b" })
	expectEvent(t, w, watch.Modified, later)
	begun := time.Now()
	err := f.Get(t.Context(), keyOf(p), storage.GetOptions{ResourceVersion: "1000000"}, newPod())
	if !storage.IsTooLargeResourceVersion(err) {
		t.Errorf("what nobody has written: %v, want too large a resource version", err)
	}
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("it was waited for only %v", took)
	}
}

// TestObjectsWithoutAKeyAreLeftOut: also when they are deleted, and others are not.
func TestObjectsWithoutAKeyAreLeftOut(t *testing.T) {
	f := setup(t, ours, func(s *settings) {
		whole := s.keyFunc
		s.keyFunc = func(o k8sruntime.Object) (string, error) {
			if o.(*example.Pod).Name == "nameless" {
				return "", errors.New("it has no key")
			}
			return whole(o)
		}
	})
	out := &example.Pod{}
	if err := f.Create(t.Context(), prefix+"ns/nameless", pod("ns", "nameless", ""), out, 0); err != nil {
		t.Fatal(err)
	}
	p := create(t, f, pod("ns", "p", ""))
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Recursive: true})
	expectEvent(t, w, watch.Added, p)
	if err := f.below.Delete(t.Context(), prefix+"ns/nameless", out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := update(t, f, p, func(p *example.Pod) { p.Spec.NodeName = "a" })
	expectEvent(t, w, watch.Modified, changed)
}

// TestStopLeavesTheChannelReadable: and closes it.
func TestStopLeavesTheChannelReadable(t *testing.T) {
	f := setup(t, ours)
	for i := range 12 {
		create(t, f, pod("ns", fmt.Sprintf("p%02d", i), ""))
	}
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: "0", Recursive: true})
	wait(t, "the channel to fill", func() bool { return len(w.ResultChan()) >= 10 })
	w.Stop()
	w.Stop()
	left := 0
	for range w.ResultChan() {
		left++
	}
	if left < 10 {
		t.Errorf("%d events were left", left)
	}
}

// TestPrefixWithoutSlash: it is the same.
func TestPrefixWithoutSlash(t *testing.T) {
	f := setup(t, ours, withConfig(func(c *store.Config) { c.ResourcePrefix = "/pods" }))
	first := create(t, f, pod("ns", "a", ""))
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: first.ResourceVersion, Recursive: true})
	expectEvent(t, w, watch.Added, create(t, f, pod("ns", "b", "")))
}

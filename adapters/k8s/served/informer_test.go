package served_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watchcache/watchcache/adapters/k8s/served"
	"github.com/watchcache/watchcache/adapters/k8s/store"
)

const (
	rounds   = 16
	lifetime = 4 // rounds of an informer
	names    = 20
	capacity = 16 // of the store's history
)

// TestInformersFollow: what client-go's informers and reflectors have is etcd's content,
// after every round of writes and of what befalls server, connections and history.
func TestInformersFollow(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel() // most of the time is client-go's, before it tries again
			follow(t, rand.New(rand.NewPCG(seed, 4)))
		})
	}
}

func follow(t *testing.T, random *rand.Rand) {
	w := newWorld(t, random)
	defer w.close()
	for round := range rounds {
		if round%lifetime == 0 {
			w.newInformers()
		}
		w.several(1 + random.IntN(2*names))
		what := random.IntN(len(befalls))
		befalls[what].happen(w)
		w.several(random.IntN(5))
		w.compare(fmt.Sprintf("round %d, %s", round, befalls[what].name))
	}
	for what, f := range w.reflectors {
		if f.line.plain && f.line.lists() < 2 {
			t.Errorf("%s listed once: nothing has expired", what)
		}
	}
}

// befalls is what can happen between two looks.
var befalls = []struct {
	name   string
	happen func(*world)
}{
	{"nothing", func(*world) {}},
	{"connections cut", func(w *world) { w.cut(func() {}) }},
	{"away for a few writes", func(w *world) { w.cut(func() { w.several(capacity / 2) }) }},
	{"away for more than history", func(w *world) {
		w.cut(func() {
			w.several(2 * capacity)
			w.compact()
		})
	}},
	{"the store relists", func(w *world) {
		w.below.refuse(true)
		w.several(4)
		w.compact()
		w.below.refuse(false)
	}},
	{"server restarts", func(w *world) { w.restart(func() { w.several(capacity / 2) }) }},
	{"server restarts after a compaction", func(w *world) {
		w.restart(func() {
			w.several(capacity / 2)
			w.compact()
		})
	}},
}

// world is a server, its etcd, and what follows it.
type world struct {
	t      *testing.T
	random *rand.Rand
	etcd   *served.Etcd
	below  *flaky
	server *served.Server
	client typed.ConfigMapInterface

	reflectors map[string]*follower
	// Informers are replaced now and then: client-go has them wait longer before each
	// time that they list again, up to a minute.
	informers      map[string]*follower
	stop, stopInfo context.CancelFunc
	running        sync.WaitGroup
}

func newWorld(t *testing.T, random *rand.Rand) *world {
	w := &world{t: t, random: random, below: &flaky{}, reflectors: map[string]*follower{}, stopInfo: func() {}}
	var err error
	if w.etcd, err = served.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.start("")
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.lines(func(what string, l *line) { w.reflectors["reflector, "+what] = w.reflector(ctx, l) })
	return w
}

// newInformers replaces the informers.
func (w *world) newInformers() {
	w.stopInfo()
	ctx, stop := context.WithCancel(context.Background())
	w.stopInfo = stop
	w.informers = map[string]*follower{}
	w.lines(func(what string, l *line) { w.informers["informer, "+what] = w.informer(ctx, l) })
}

// lines makes one of each kind.
func (w *world) lines(each func(what string, l *line)) {
	for _, http2 := range []bool{false, true} {
		for _, plain := range []bool{false, true} {
			each(fmt.Sprintf("http2=%t plain=%t", http2, plain), newLine(w.t, w.server, http2, plain))
		}
	}
}

// followers are all that follow, by what they are.
func (w *world) followers() iter.Seq2[string, *follower] {
	return func(yield func(string, *follower) bool) {
		for _, of := range []map[string]*follower{w.reflectors, w.informers} {
			for what, f := range of {
				if !yield(what, f) {
					return
				}
			}
		}
	}
}

func (w *world) close() {
	w.stop()
	w.stopInfo()
	w.running.Wait()
	w.server.Close()
	w.etcd.Close()
}

// start starts the server, where it was before if an address is given.
func (w *world) start(address string) {
	w.t.Helper()
	s, err := served.Start(w.t.Context(), served.Options{
		Etcd:    w.etcd,
		Address: address,
		Below:   w.below.over,
		Store:   func(c *store.Config) { c.Capacity = capacity },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.server, w.client = s, client(w.t, s, true)
}

// restart ends the server, and starts it when something has happened meanwhile. What is
// written in between goes through another one: etcd has many clients.
func (w *world) restart(meanwhile func()) {
	address := w.server.Address()
	w.server.Close()
	w.start("")
	meanwhile()
	w.server.Close()
	w.start(address)
	for _, f := range w.followers() {
		f.line.trust(w.server)
	}
}

// follower is something that mirrors the server's state.
type follower struct {
	line  *line
	store cache.Store
	heard *heard // nil: it has no handlers
}

// backoff has followers come back soon.
var backoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.5, Steps: 10, Cap: 200 * time.Millisecond}

func (w *world) reflector(ctx context.Context, l *line) *follower {
	of := cache.NewStore(cache.MetaNamespaceKeyFunc)
	own := backoff
	r := cache.NewReflectorWithOptions(l, &corev1.ConfigMap{}, of, cache.ReflectorOptions{Backoff: &own})
	w.running.Go(func() { r.RunWithContext(ctx) })
	return &follower{line: l, store: of}
}

func (w *world) informer(ctx context.Context, l *line) *follower {
	i := cache.NewSharedIndexInformer(l, &corev1.ConfigMap{}, 0, cache.Indexers{})
	h := &heard{objects: map[string]string{}}
	if _, err := i.AddEventHandler(h); err != nil {
		w.t.Fatal(err)
	}
	// client-go's own writes to the log, and waits longer when it is busy.
	if err := i.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
		w.t.Fatal(err)
	}
	w.running.Go(func() { i.RunWithContext(ctx) })
	return &follower{line: l, store: i.GetStore(), heard: h}
}

// compare waits until all that follows has what etcd has.
func (w *world) compare(when string) {
	w.t.Helper()
	want := w.truth()
	for what, f := range w.followers() {
		var got map[string]string
		until(w.t, what+", "+when, func() bool {
			got = map[string]string{}
			for _, object := range f.store.List() {
				got[object.(*corev1.ConfigMap).Name] = text(object)
			}
			return maps.Equal(got, want) && (f.heard == nil || maps.Equal(f.heard.now(), want))
		})
		if f.heard != nil && f.heard.wrong != nil {
			w.t.Fatalf("%s, %s: %q", what, when, f.heard.wrong)
		}
	}
}

// truth returns etcd's content, read without any of what is tested.
func (w *world) truth() map[string]string {
	w.t.Helper()
	response, err := w.etcd.Client().Get(w.t.Context(), "/registry"+served.ConfigMaps.Prefix(), clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range response.Kvs {
		encoded, ok := strings.CutPrefix(string(kv.Value), "k8s\x00") // how Kubernetes marks its protobuf
		var unknown runtime.Unknown
		if !ok || unknown.Unmarshal([]byte(encoded)) != nil {
			w.t.Fatalf("etcd has %q", kv.Value)
		}
		var object corev1.ConfigMap
		if err := object.Unmarshal(unknown.Raw); err != nil {
			w.t.Fatal(err)
		}
		object.ResourceVersion = fmt.Sprint(kv.ModRevision)
		all[object.Name] = text(&object)
	}
	return all
}

// text is what must be the same of two objects.
func text(object any) string {
	m := object.(*corev1.ConfigMap)
	return m.Data["value"] + "@" + m.ResourceVersion
}

// heard is an informer's handler, which has only what it was told.
type heard struct {
	mu      sync.Mutex
	objects map[string]string
	wrong   []string
}

func (h *heard) OnAdd(object any, _ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[object.(*corev1.ConfigMap).Name] = text(object)
}

func (h *heard) OnUpdate(old, object any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := object.(*corev1.ConfigMap).Name
	if h.objects[name] != text(old) {
		h.wrong = append(h.wrong, fmt.Sprintf("%s was %s, and the old object is %s", name, h.objects[name], text(old)))
	}
	h.objects[name] = text(object)
}

func (h *heard) OnDelete(object any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	delete(h.objects, object.(*corev1.ConfigMap).Name)
}

func (h *heard) now() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.objects)
}

func (w *world) write() {
	name := fmt.Sprintf("object-%d", w.random.IntN(names))
	object := configMap(name, fmt.Sprint(w.random.Uint32()))
	ctx, c := w.t.Context(), w.client
	var err error
	switch w.random.IntN(3) {
	case 0:
		err = c.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		if _, err = c.Update(ctx, object, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
			_, err = c.Create(ctx, object, metav1.CreateOptions{})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

func (w *world) several(n int) {
	for range n {
		w.write()
	}
}

// compact has etcd forget all but its newest state.
func (w *world) compact() {
	w.t.Helper()
	response, err := w.etcd.Client().Get(w.t.Context(), "none")
	if err == nil {
		_, err = w.etcd.Client().Compact(w.t.Context(), response.Header.Revision)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// cut takes the followers' connections away while something happens.
func (w *world) cut(meanwhile func()) {
	for _, f := range w.followers() {
		f.line.set(true)
	}
	meanwhile()
	for _, f := range w.followers() {
		f.line.set(false)
	}
}

// flaky is etcd's storage, whose watches can end and be refused.
type flaky struct {
	mu      sync.Mutex
	refused bool
	watches []context.CancelFunc
}

func (f *flaky) over(of storage.Interface) storage.Interface { return &flakyStorage{of, f} }

func (f *flaky) refuse(refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = refuse
	for _, end := range f.watches {
		end()
	}
	f.watches = nil
}

type flakyStorage struct {
	storage.Interface
	line *flaky
}

// Watch is of storage.Interface.
func (s *flakyStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	if s.line.refused {
		return nil, apierrors.NewInternalError(fmt.Errorf("etcd is away"))
	}
	ctx, end := context.WithCancel(ctx)
	s.line.watches = append(s.line.watches, end)
	return s.Interface.Watch(ctx, key, opts)
}

// line is a client's way to the server, which can be cut.
type line struct {
	t     *testing.T
	http2 bool
	plain bool // lists, and then watches

	mu     sync.Mutex
	client typed.ConfigMapInterface
	down   bool
	conns  map[net.Conn]struct{}
	listed int
}

func newLine(t *testing.T, s *served.Server, http2, plain bool) *line {
	l := &line{t: t, http2: http2, plain: plain, conns: map[net.Conn]struct{}{}}
	l.trust(s)
	return l
}

// trust makes a new client: a server that has started anew has a new certificate.
func (l *line) trust(s *served.Server) {
	config := s.ClientConfig(l.http2)
	config.Dial = l.dial
	c, err := typed.NewForConfig(config)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = c.ConfigMaps("default")
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		conn.Close()
		return nil, net.ErrClosed
	}
	l.conns[conn] = struct{}{}
	return conn, nil
}

func (l *line) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for conn := range l.conns {
		conn.Close()
	}
	clear(l.conns)
}

func (l *line) lists() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed
}

func (l *line) now(lists bool) typed.ConfigMapInterface {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lists {
		l.listed++
	}
	return l.client
}

// IsWatchListSemanticsUnSupported is what client-go asks for, before it watches without
// having listed.
func (l *line) IsWatchListSemanticsUnSupported() bool { return l.plain }

func (l *line) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

func (l *line) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

func (l *line) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return l.now(true).List(ctx, opts)
}

func (l *line) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return l.now(false).Watch(ctx, opts)
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcd3testing "k8s.io/apiserver/pkg/storage/etcd3/testing"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/watchcache/watchcache/adapters/k8s/store"
)

const prefix = "/pods/"

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	codec  runtime.Codec
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	pb := protobuf.NewSerializer(scheme, scheme)
	codec = codecs.CodecForVersions(pb, pb, schema.GroupVersions{examplev1.SchemeGroupVersion}, nil)
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func podAttrs(object runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := object.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no pod", object)
	}
	return pod.Labels, fields.Set{
		"metadata.name":      pod.Name,
		"metadata.namespace": pod.Namespace,
		"spec.nodeName":      pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase":       string(pod.Status.Phase),
	}, nil
}

// settings are what tests choose of a fixture.
type settings struct {
	keyFunc     func(runtime.Object) (string, error)
	indexed     bool
	codec       runtime.Codec
	transformer value.Transformer
	config      func(*store.Config)
}

type setting func(*settings)

func clusterScoped(s *settings) {
	s.keyFunc = func(o runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc(prefix, o) }
}
func indexed(s *settings)                           { s.indexed = true }
func withCodec(c runtime.Codec) setting             { return func(s *settings) { s.codec = c } }
func withTransformer(t value.Transformer) setting   { return func(s *settings) { s.transformer = t } }
func withConfig(change func(*store.Config)) setting { return func(s *settings) { s.config = change } }

// subject is what the tests of storage are run on: the store, or apiserver's own cache.
type subject struct {
	name string
	make func(t testing.TB, of storage.Interface, s settings) subjectStore
}

// subjectStore is a storage.Interface whose end and readiness tests need.
type subjectStore interface {
	storage.Interface
	Stop()
	Wait(context.Context) error
}

var ours = subject{"Store", func(t testing.TB, of storage.Interface, s settings) subjectStore {
	config := store.Config{
		Storage:        of,
		ResourcePrefix: prefix,
		GroupResource:  schema.GroupResource{Resource: "pods"},
		KeyFunc:        s.keyFunc,
		GetAttrs:       podAttrs,
		NewFunc:        newPod,
		NewListFunc:    newPodList,
	}
	if s.indexed {
		config.IndexerFuncs, config.Indexers = triggers, &indexers
	}
	if s.config != nil {
		s.config(&config)
	}
	st, err := store.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return st
}}

// theirs is apiserver's own cache.
var theirs = subject{"cacher", func(t testing.TB, of storage.Interface, s settings) subjectStore {
	config := cacher.Config{
		Storage:             of,
		Versioner:           of.Versioner(),
		GroupResource:       schema.GroupResource{Resource: "pods"},
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      prefix,
		KeyFunc:             s.keyFunc,
		GetAttrsFunc:        podAttrs,
		NewFunc:             newPod,
		NewListFunc:         newPodList,
		Codec:               s.codec,
		Indexers:            &cache.Indexers{},
		Clock:               clock.RealClock{},
	}
	if s.indexed {
		config.IndexerFuncs, config.Indexers = triggers, &indexers
	}
	c, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &delegated{cacher.NewCacheDelegator(c, of), c}
}}

type delegated struct {
	*cacher.CacheDelegator
	cacher *cacher.Cacher
}

func (d *delegated) Stop()                          { d.CacheDelegator.Stop(); d.cacher.Stop() }
func (d *delegated) Wait(ctx context.Context) error { return d.cacher.Wait(ctx) }

var (
	triggers = storage.IndexerFuncs{"spec.nodeName": func(o runtime.Object) string { return o.(*example.Pod).Spec.NodeName }}
	indexers = cache.Indexers{
		storage.FieldIndex("spec.nodeName"):      func(o any) ([]string, error) { return []string{o.(*example.Pod).Spec.NodeName}, nil },
		storage.FieldIndex("metadata.namespace"): func(o any) ([]string, error) { return []string{o.(*example.Pod).Namespace}, nil },
	}
)

// fixture is a subject before an etcd of its own.
type fixture struct {
	subjectStore
	etcd  *clientv3.Client
	lists *storagetesting.KubernetesRecorder
	below *below
}

func setup(t testing.TB, of subject, set ...setting) *fixture {
	t.Helper()
	s := settings{
		keyFunc:     func(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) },
		codec:       codec,
		transformer: identity.NewEncryptCheckTransformer(),
	}
	for _, set := range set {
		set(&s)
	}
	server, _ := etcd3testing.NewUnsecuredEtcd3TestClientServer(t)
	client := server.V3Client.Client
	t.Cleanup(func() { client.Close() }) // which the server does not do
	compactor := etcd3.NewCompactor(client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	versioner := storage.APIObjectVersioner{}
	etcd, err := etcd3.New(server.V3Client, compactor, s.codec, newPod, newPodList, etcd3testing.PathPrefix(), prefix,
		schema.GroupResource{Resource: "pods"}, s.transformer, etcd3.NewDefaultLeaseManagerConfig(),
		etcd3.NewDefaultDecoder(s.codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	// What etcd can do is asked for in the background, once for the process.
	wait(t, "etcd's features", func() bool {
		return etcdfeature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress)
	})
	f := &fixture{etcd: client, below: &below{Interface: etcd}}
	f.lists, _ = server.V3Client.Kubernetes.(*storagetesting.KubernetesRecorder)
	if of.name == ours.name || !clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) {
		f.below.failLists.Store(1)
	}
	f.subjectStore = of.make(t, f.below, s)
	t.Cleanup(f.Stop)
	wait(t, "the failing list", func() bool { return f.below.failLists.Load() <= 0 })
	if err := f.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func wait(t testing.TB, what string, until func() bool) {
	t.Helper()
	err := utilwait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return until(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// below is the storage below a subject: it fails where it is told to, and counts.
type below struct {
	storage.Interface
	failLists      atomic.Int64
	lists, watches atomic.Int64

	mu   sync.Mutex
	open map[*cuttable]struct{}
}

func (b *below) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	b.lists.Add(1)
	if b.failLists.Add(-1) >= 0 {
		return errors.New("etcd is not there yet")
	}
	return b.Interface.GetList(ctx, key, opts, list)
}

func (b *below) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	b.watches.Add(1)
	w, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	c := &cuttable{Interface: w, cut: make(chan watch.Event, 1), stopped: make(chan struct{}), results: make(chan watch.Event)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[*cuttable]struct{}{}
	}
	b.open[c] = struct{}{}
	go c.run(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, c)
	})
	return c, nil
}

// cut ends the watches that are open with an error.
func (b *below) cut(err *apierrors.StatusError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		select {
		case c.cut <- watch.Event{Type: watch.Error, Object: &err.ErrStatus}:
		default:
		}
	}
}

// cuttable is a watch that the test can end.
type cuttable struct {
	watch.Interface
	cut     chan watch.Event
	once    sync.Once
	stopped chan struct{}
	results chan watch.Event
}

func (c *cuttable) ResultChan() <-chan watch.Event { return c.results }

func (c *cuttable) Stop() {
	c.once.Do(func() { close(c.stopped) })
	c.Interface.Stop()
}

func (c *cuttable) run(ended func()) {
	defer ended()
	defer close(c.results)
	for {
		var ev watch.Event
		var open, last bool
		select {
		case ev, open = <-c.Interface.ResultChan():
		case ev, last = <-c.cut:
			open = true
			c.Interface.Stop()
		}
		if !open {
			return
		}
		select {
		case c.results <- ev:
		case <-c.stopped:
			return
		}
		if last {
			return
		}
	}
}

// compactWatch is a storagetesting.Compaction: history ends at a resource version.
func (f *fixture) compactWatch(ctx context.Context, t *testing.T, resourceVersion string) {
	if err := f.Get(ctx, prefix+"none/none", storage.GetOptions{ResourceVersion: resourceVersion, IgnoreNotFound: true}, newPod()); err != nil {
		t.Fatal(err)
	}
	// Where nothing can have been missed, the store's history goes on: something elsewhere
	// in etcd makes that unknown.
	f.increaseRV(ctx, t)
	watches := f.below.watches.Load()
	f.below.cut(apierrors.NewResourceExpired("history is gone"))
	wait(t, "the state to be listed anew", func() bool { return f.below.watches.Load() > watches })
	wait(t, "the subject to be ready", func() bool { return f.ReadinessCheck() == nil })
	revision, err := f.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.etcd.Compact(ctx, int64(revision)); err != nil {
		t.Fatal(err)
	}
}

// compactStore is a storagetesting.Compaction: etcd is compacted, and the subject knows.
func (f *fixture) compactStore(ctx context.Context, t *testing.T, resourceVersion string) {
	revision, err := f.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	var version int64
	version, _, _, err = etcd3.Compact(ctx, f.etcd, version, int64(revision))
	if err != nil {
		_, _, _, err = etcd3.Compact(ctx, f.etcd, version, int64(revision))
	}
	if err != nil {
		t.Fatal(err)
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		wait(t, "the compaction to be known", func() bool { return f.CompactRevision() == int64(revision) })
	}
}

// increaseRV is a storagetesting.IncreaseRVFunc.
func (f *fixture) increaseRV(ctx context.Context, t *testing.T) int64 {
	put, err := f.etcd.KV.Put(ctx, "increaseRV", "ok")
	if err != nil {
		t.Fatal(err)
	}
	return put.Header.Revision
}

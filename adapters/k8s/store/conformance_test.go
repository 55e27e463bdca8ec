package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// plain is a case of Kubernetes' suite that takes a context, a test and a store, and
// nothing else.
type plain = func(context.Context, *testing.T, storage.Interface)

// TestConformance is Kubernetes' own suite for its storage, each function that apiserver
// runs on its own cache, and three that it does not.
func TestConformance(t *testing.T) { conformance(t, ours) }

// TestConformanceOfCacher is the same suite on apiserver's own cache: what fails there is
// the harness's fault.
func TestConformanceOfCacher(t *testing.T) { conformance(t, theirs) }

// suite runs the cases on a subject, each on a store of its own, and keeps the results.
type suite struct {
	t  *testing.T
	of subject
}

func (s suite) run(name string, f func(context.Context, *testing.T)) {
	begun := time.Now()
	passed := s.t.Run(name, func(t *testing.T) { f(context.Background(), t) })
	results.add(s.of.name, name, passed, time.Since(begun))
}

func (s suite) plain(name string, f plain, set ...setting) {
	s.run(name, func(ctx context.Context, t *testing.T) { f(ctx, t, setup(t, s.of, set...)) })
}

func conformance(t *testing.T, of subject) {
	s := suite{t, of}
	s.writes()
	s.reads()
	s.watches()
}

func (s suite) writes() {
	noCheck := func(context.Context, *testing.T, string) {}
	s.plain("Create", func(ctx context.Context, t *testing.T, st storage.Interface) {
		storagetesting.RunTestCreate(ctx, t, st, noCheck)
	})
	s.plain("CreateWithTTL", storagetesting.RunTestCreateWithTTL)
	s.plain("CreateWithKeyExist", storagetesting.RunTestCreateWithKeyExist)
	s.plain("UnconditionalDelete", storagetesting.RunTestUnconditionalDelete)
	s.plain("ConditionalDelete", storagetesting.RunTestConditionalDelete)
	s.plain("DeleteWithSuggestion", storagetesting.RunTestDeleteWithSuggestion)
	s.plain("DeleteWithSuggestionAndConflict", storagetesting.RunTestDeleteWithSuggestionAndConflict)
	s.plain("DeleteWithSuggestionOfDeletedObject", storagetesting.RunTestDeleteWithSuggestionOfDeletedObject)
	s.plain("ValidateDeletionWithSuggestion", storagetesting.RunTestValidateDeletionWithSuggestion)
	s.plain("ValidateDeletionWithOnlySuggestionValid", storagetesting.RunTestValidateDeletionWithOnlySuggestionValid)
	s.plain("DeleteWithConflict", storagetesting.RunTestDeleteWithConflict)
	s.unreadable()
	s.plain("PreconditionalDeleteWithSuggestion", storagetesting.RunTestPreconditionalDeleteWithSuggestion)
	s.plain("PreconditionalDeleteWithOnlySuggestionPass", storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass)
	s.run("GuaranteedUpdate", func(ctx context.Context, t *testing.T) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, prefixed(t, s.of), noCheck)
	})
	s.plain("GuaranteedUpdateWithTTL", storagetesting.RunTestGuaranteedUpdateWithTTL)
	s.plain("GuaranteedUpdateWithConflict", storagetesting.RunTestGuaranteedUpdateWithConflict)
	s.plain("GuaranteedUpdateWithSuggestionAndConflict", storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict)
	s.plain("KeySchema", storagetesting.RunTestKeySchema)
}

func (s suite) reads() {
	noCalls := func(*testing.T, uint64, uint64) {}
	s.plain("Get", storagetesting.RunTestGet)
	s.plain("ListPaging", storagetesting.RunTestListPaging)
	for _, snapshots := range []bool{true, false} {
		s.lists(snapshots)
	}
	s.run("CompactRevision", func(ctx context.Context, t *testing.T) {
		gate(t, features.ListFromCacheSnapshot, true)
		f := setup(t, s.of)
		storagetesting.RunTestCompactRevision(ctx, t, f, f.increaseRV, f.compactStore)
	})
	s.plain("GetListRecursivePrefix", storagetesting.RunTestGetListRecursivePrefix)
	for name, f := range map[string]func(context.Context, *testing.T, storage.Interface, storagetesting.CallsValidation){
		"ListContinuation":           storagetesting.RunTestListContinuation,
		"ListPaginationRareObject":   storagetesting.RunTestListPaginationRareObject,
		"ListContinuationWithFilter": storagetesting.RunTestListContinuationWithFilter,
	} {
		s.plain(name, func(ctx context.Context, t *testing.T, st storage.Interface) { f(ctx, t, st, noCalls) })
	}
	s.run("ListResourceVersionMatch", func(ctx context.Context, t *testing.T) {
		storagetesting.RunTestListResourceVersionMatch(ctx, t, prefixed(t, s.of))
	})
	s.plain("NamespaceScopedList", storagetesting.RunTestNamespaceScopedList, indexed)
	for _, sized := range []bool{true, false} {
		s.run(fmt.Sprint("Stats, SizeBasedListCostEstimate=", sized), func(ctx context.Context, t *testing.T) {
			gate(t, features.SizeBasedListCostEstimate, sized)
			storagetesting.RunTestStats(ctx, t, setup(t, s.of), codec, identity.NewEncryptCheckTransformer(), sized)
		})
	}
}

func gate(t *testing.T, feature featuregate.Feature, on bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, feature, on)
}

func (s suite) lists(snapshots bool) {
	run := func(name string, f func(context.Context, *testing.T, *fixture)) {
		s.run(fmt.Sprintf("%s, ListFromCacheSnapshot=%v", name, snapshots), func(ctx context.Context, t *testing.T) {
			gate(t, features.ListFromCacheSnapshot, snapshots)
			f(ctx, t, setup(t, s.of))
		})
	}
	run("List", func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestList(ctx, t, f, f.compactStore, true, f.lists)
	})
	run("ConsistentList", func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestConsistentList(ctx, t, f, f.increaseRV, true, true, snapshots)
	})
	run("GetListNonRecursive", func(ctx context.Context, t *testing.T, f *fixture) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, f.increaseRV, f)
	})
}

func (s suite) watches() {
	s.plain("Watch", storagetesting.RunTestWatch)
	s.run("WatchFromZero", func(ctx context.Context, t *testing.T) {
		f := setup(t, s.of)
		storagetesting.RunTestWatchFromZero(ctx, t, f, f.compactWatch)
	})
	s.plain("DeleteTriggerWatch", storagetesting.RunTestDeleteTriggerWatch)
	s.plain("WatchFromNonZero", storagetesting.RunTestWatchFromNonZero)
	s.plain("DelayedWatchDelivery", storagetesting.RunTestDelayedWatchDelivery)
	s.plain("WatchContextCancel", storagetesting.RunTestWatchContextCancel)
	s.plain("WatcherTimeout", storagetesting.RunTestWatcherTimeout)
	s.plain("WatchDeleteEventObjectHaveLatestRV", storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)
	s.plain("WatchInitializationSignal", storagetesting.RunTestWatchInitializationSignal)
	s.plain("ClusterScopedWatch", storagetesting.RunTestClusterScopedWatch, clusterScoped, indexed)
	s.plain("NamespaceScopedWatch", storagetesting.RunTestNamespaceScopedWatch, indexed)
	s.plain("WatchDispatchBookmarkEvents", func(ctx context.Context, t *testing.T, st storage.Interface) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, st, true)
	})
	s.plain("WatchBookmarksWithCorrectResourceVersion", storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion)
	s.plain("SendInitialEventsBackwardCompatibility", storagetesting.RunSendInitialEventsBackwardCompatibility)
	for name, f := range map[string]plain{
		"WatchSemantics":                     storagetesting.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended": storagetesting.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":               storagetesting.RunWatchListMatchSingle,
	} {
		s.run(name, func(ctx context.Context, t *testing.T) { f(ctx, t, creator{setup(t, s.of)}) })
	}
}

// creator waits until what was created is in the cache, which these cases expect.
type creator struct{ *fixture }

func (c creator) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	if err := c.fixture.Create(ctx, key, object, out, ttl); err != nil {
		return err
	}
	return utilwait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		cached := newPod()
		err := c.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, cached)
		if storage.IsNotFound(err) {
			return false, nil
		}
		return apiequality.Semantic.DeepEqual(cached, out), err
	})
}

// unreadable are the cases about objects that cannot be decoded any more.
func (s suite) unreadable() {
	run := func(name string, f func(context.Context, *testing.T)) {
		s.run(name, func(ctx context.Context, t *testing.T) {
			gate(t, features.AllowUnsafeMalformedObjectDeletion, true)
			f(ctx, t)
		})
	}
	run("DeleteWithConflictAndMissingExpectedTransformOrDecodeError", func(ctx context.Context, t *testing.T) {
		broken := &breakable{Transformer: identity.NewEncryptCheckTransformer()}
		storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, setup(t, s.of, withTransformer(broken)), broken.broken.Store)
	})
	run("DeleteWithConflictAndExpectedTransformError", func(ctx context.Context, t *testing.T) {
		broken := &breakable{Transformer: identity.NewEncryptCheckTransformer()}
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, setup(t, s.of, withTransformer(broken)), broken.broken.Store)
	})
	run("DeleteWithConflictAndExpectedDecodeError", func(ctx context.Context, t *testing.T) {
		etcd3.TestOnlySetFatalOnDecodeError(t, false)
		broken := &breakableCodec{Codec: codec}
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, setup(t, s.of, withCodec(broken)), broken.broken.Store)
	})
	run("DeleteWithSuggestionAndMissingExpectedTransformOrDecodeError", func(ctx context.Context, t *testing.T) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, setup(t, s.of))
	})
}

var errBroken = errors.New("it cannot be read")

// breakable is a transformer that stops reading when it is told to.
type breakable struct {
	value.Transformer
	broken atomic.Bool
}

func (b *breakable) TransformFromStorage(ctx context.Context, data []byte, of value.Context) ([]byte, bool, error) {
	if b.broken.Load() {
		return nil, false, errBroken
	}
	return b.Transformer.TransformFromStorage(ctx, data, of)
}

type breakableCodec struct {
	runtime.Codec
	broken atomic.Bool
}

func (b *breakableCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if b.broken.Load() {
		return nil, nil, errBroken
	}
	return b.Codec.Decode(data, defaults, into)
}

// prefixed is a fixture whose transformer puts a prefix before what it stores, and can be
// exchanged.
func prefixed(t *testing.T, of subject) storagetesting.InterfaceWithPrefixTransformer {
	exchangeable := &exchangeable{}
	exchangeable.now.Store(&box{newPrefixTransformer()})
	return prefixedFixture{setup(t, of, withTransformer(exchangeable)), exchangeable}
}

func newPrefixTransformer() *storagetesting.PrefixTransformer {
	return storagetesting.NewPrefixTransformer([]byte("k8s!"), false)
}

type prefixedFixture struct {
	*fixture
	transformer *exchangeable
}

func (p prefixedFixture) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	// A new one: the cache's own watch counts its reads in the one that is there.
	before := p.transformer.now.Swap(&box{modify(newPrefixTransformer())})
	return func() { p.transformer.now.Store(before) }
}

type box struct{ value.Transformer }

// exchangeable is a transformer that is now this and now that.
type exchangeable struct{ now atomic.Pointer[box] }

func (e *exchangeable) TransformFromStorage(ctx context.Context, data []byte, of value.Context) ([]byte, bool, error) {
	return e.now.Load().TransformFromStorage(ctx, data, of)
}

func (e *exchangeable) TransformToStorage(ctx context.Context, data []byte, of value.Context) ([]byte, error) {
	return e.now.Load().TransformToStorage(ctx, data, of)
}

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
func TestConformanceOfCacher(t *testing.T) {
	if testing.Short() {
		t.Log("the harness is tested without -short")
		return
	}
	conformance(t, theirs)
}

func conformance(t *testing.T, of subject) {
	background := context.Background()
	run := func(name string, f plain, set ...setting) {
		t.Run(name, func(t *testing.T) { f(background, t, setup(t, of, set...)) })
	}
	noCheck := func(context.Context, *testing.T, string) {}
	noCalls := func(*testing.T, uint64, uint64) {}

	run("Create", func(ctx context.Context, t *testing.T, s storage.Interface) {
		storagetesting.RunTestCreate(ctx, t, s, noCheck)
	})
	run("CreateWithTTL", storagetesting.RunTestCreateWithTTL)
	run("CreateWithKeyExist", storagetesting.RunTestCreateWithKeyExist)
	run("Get", storagetesting.RunTestGet)
	run("UnconditionalDelete", storagetesting.RunTestUnconditionalDelete)
	run("ConditionalDelete", storagetesting.RunTestConditionalDelete)
	run("DeleteWithSuggestion", storagetesting.RunTestDeleteWithSuggestion)
	run("DeleteWithSuggestionAndConflict", storagetesting.RunTestDeleteWithSuggestionAndConflict)
	run("DeleteWithSuggestionOfDeletedObject", storagetesting.RunTestDeleteWithSuggestionOfDeletedObject)
	run("ValidateDeletionWithSuggestion", storagetesting.RunTestValidateDeletionWithSuggestion)
	run("ValidateDeletionWithOnlySuggestionValid", storagetesting.RunTestValidateDeletionWithOnlySuggestionValid)
	run("DeleteWithConflict", storagetesting.RunTestDeleteWithConflict)
	t.Run("Unreadable", func(t *testing.T) { unreadable(t, of) })
	run("PreconditionalDeleteWithSuggestion", storagetesting.RunTestPreconditionalDeleteWithSuggestion)
	run("PreconditionalDeleteWithOnlySuggestionPass", storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass)
	run("ListPaging", storagetesting.RunTestListPaging)
	for _, snapshots := range []bool{true, false} {
		t.Run(fmt.Sprint("Lists/ListFromCacheSnapshot=", snapshots), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ListFromCacheSnapshot, snapshots)
			lists(t, of, snapshots)
		})
	}
	t.Run("CompactRevision", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ListFromCacheSnapshot, true)
		f := setup(t, of)
		storagetesting.RunTestCompactRevision(background, t, f, f.increaseRV, f.compactStore)
	})
	run("GetListRecursivePrefix", storagetesting.RunTestGetListRecursivePrefix)
	run("ListContinuation", func(ctx context.Context, t *testing.T, s storage.Interface) {
		storagetesting.RunTestListContinuation(ctx, t, s, noCalls)
	})
	run("ListPaginationRareObject", func(ctx context.Context, t *testing.T, s storage.Interface) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, s, noCalls)
	})
	run("ListContinuationWithFilter", func(ctx context.Context, t *testing.T, s storage.Interface) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, s, noCalls)
	})
	t.Run("ListResourceVersionMatch", func(t *testing.T) {
		storagetesting.RunTestListResourceVersionMatch(background, t, prefixed(t, of))
	})
	run("NamespaceScopedList", storagetesting.RunTestNamespaceScopedList, indexed)
	t.Run("GuaranteedUpdate", func(t *testing.T) {
		storagetesting.RunTestGuaranteedUpdate(background, t, prefixed(t, of), noCheck)
	})
	run("GuaranteedUpdateWithTTL", storagetesting.RunTestGuaranteedUpdateWithTTL)
	run("GuaranteedUpdateWithConflict", storagetesting.RunTestGuaranteedUpdateWithConflict)
	run("GuaranteedUpdateWithSuggestionAndConflict", storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict)
	for _, sized := range []bool{true, false} {
		t.Run(fmt.Sprint("Stats/SizeBasedListCostEstimate=", sized), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SizeBasedListCostEstimate, sized)
			storagetesting.RunTestStats(background, t, setup(t, of), codec, identity.NewEncryptCheckTransformer(), sized)
		})
	}
	run("KeySchema", storagetesting.RunTestKeySchema)
	t.Run("Watch", func(t *testing.T) { watches(t, of) })
}

func lists(t *testing.T, of subject, snapshots bool) {
	ctx := context.Background()
	t.Run("List", func(t *testing.T) {
		f := setup(t, of)
		if f.lists == nil {
			t.Fatal("nothing records what etcd is asked for")
		}
		storagetesting.RunTestList(ctx, t, f, f.compactStore, true, f.lists)
	})
	t.Run("ConsistentList", func(t *testing.T) {
		f := setup(t, of)
		storagetesting.RunTestConsistentList(ctx, t, f, f.increaseRV, true, true, snapshots)
	})
	t.Run("GetListNonRecursive", func(t *testing.T) {
		f := setup(t, of)
		storagetesting.RunTestGetListNonRecursive(ctx, t, f.increaseRV, f)
	})
}

func watches(t *testing.T, of subject) {
	ctx := context.Background()
	run := func(name string, f plain, set ...setting) {
		t.Run(name, func(t *testing.T) { f(ctx, t, setup(t, of, set...)) })
	}
	run("Watch", storagetesting.RunTestWatch)
	t.Run("WatchFromZero", func(t *testing.T) {
		f := setup(t, of)
		storagetesting.RunTestWatchFromZero(ctx, t, f, f.compactWatch)
	})
	run("DeleteTriggerWatch", storagetesting.RunTestDeleteTriggerWatch)
	run("WatchFromNonZero", storagetesting.RunTestWatchFromNonZero)
	run("DelayedWatchDelivery", storagetesting.RunTestDelayedWatchDelivery)
	run("WatchContextCancel", storagetesting.RunTestWatchContextCancel)
	run("WatcherTimeout", storagetesting.RunTestWatcherTimeout)
	run("WatchDeleteEventObjectHaveLatestRV", storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)
	run("WatchInitializationSignal", storagetesting.RunTestWatchInitializationSignal)
	run("ClusterScopedWatch", storagetesting.RunTestClusterScopedWatch, clusterScoped, indexed)
	run("NamespaceScopedWatch", storagetesting.RunTestNamespaceScopedWatch, indexed)
	run("WatchDispatchBookmarkEvents", func(ctx context.Context, t *testing.T, s storage.Interface) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
	})
	run("WatchBookmarksWithCorrectResourceVersion", storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion)
	run("SendInitialEventsBackwardCompatibility", storagetesting.RunSendInitialEventsBackwardCompatibility)
	for name, f := range map[string]plain{
		"WatchSemantics":                     storagetesting.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended": storagetesting.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":               storagetesting.RunWatchListMatchSingle,
	} {
		t.Run(name, func(t *testing.T) { f(ctx, t, creator{setup(t, of)}) })
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
func unreadable(t *testing.T, of subject) {
	ctx := context.Background()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, true)
	t.Run("DeleteWithConflictAndMissingExpectedTransformOrDecodeError", func(t *testing.T) {
		broken := &breakable{Transformer: identity.NewEncryptCheckTransformer()}
		storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, setup(t, of, withTransformer(broken)), broken.broken.Store)
	})
	t.Run("DeleteWithConflictAndExpectedTransformError", func(t *testing.T) {
		broken := &breakable{Transformer: identity.NewEncryptCheckTransformer()}
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, setup(t, of, withTransformer(broken)), broken.broken.Store)
	})
	t.Run("DeleteWithConflictAndExpectedDecodeError", func(t *testing.T) {
		etcd3.TestOnlySetFatalOnDecodeError(t, false)
		broken := &breakableCodec{Codec: codec}
		storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, setup(t, of, withCodec(broken)), broken.broken.Store)
	})
	t.Run("DeleteWithSuggestionAndMissingExpectedTransformOrDecodeError", func(t *testing.T) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, setup(t, of))
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
	original := storagetesting.NewPrefixTransformer([]byte("k8s!"), false)
	exchangeable := &exchangeable{}
	exchangeable.now.Store(&box{original})
	return prefixedFixture{setup(t, of, withTransformer(exchangeable)), original, exchangeable}
}

type prefixedFixture struct {
	*fixture
	original    *storagetesting.PrefixTransformer
	transformer *exchangeable
}

func (p prefixedFixture) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	changed := *p.original
	before := p.transformer.now.Swap(&box{modify(&changed)})
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

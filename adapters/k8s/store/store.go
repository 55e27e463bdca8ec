// Package store serves Kubernetes' storage from a [watchcache.Cache]: a [Store] is a
// storage.Interface of k8s.io/apiserver in front of another one, which is etcd's. Watches,
// lists and reads with a resource version come out of the cache, which follows etcd by one
// watch for all clients; writes go through. A client of a watch that does not read is
// ended, and holds nothing then.
package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/watchcache/watchcache"
)

// Config are the settings of [New]. What has no default must be set. Functions must be
// safe for concurrent use.
type Config struct {
	// Storage is what has the data. Its writes, its lists and its watch must be of the
	// same etcd.
	Storage storage.Interface
	// ResourcePrefix is what the keys of all objects begin with: "/pods/". The slash at
	// its end may be left out.
	ResourcePrefix string
	// GroupResource is for messages.
	GroupResource schema.GroupResource
	// KeyFunc returns the key of an object. An object without one is left out.
	KeyFunc func(runtime.Object) (string, error)
	// GetAttrs returns what selectors look at. An object that it refuses is left out.
	GetAttrs storage.AttrFunc
	// NewFunc and NewListFunc make an empty object and an empty list.
	NewFunc, NewListFunc func() runtime.Object
	// IndexerFuncs are the fields by which watches are chosen, such as spec.nodeName: a
	// watch of one value is not woken by changes of others.
	IndexerFuncs storage.IndexerFuncs
	// Indexers make lists of one value cost what they return. Default: none.
	Indexers *cache.Indexers

	// Stall is how watches of clients that stall are dealt with. Default
	// watchcache.Evict{}. There is no way to tell a client of Kubernetes to begin
	// anew, so that one who is to be resynced is ended, too, and lists.
	Stall watchcache.StallPolicy
	// Capacity is the most events that history keeps. Default 102400, which is that of
	// apiserver's own cache. Retention is for how long; default 75 s, likewise.
	Capacity  int
	Retention time.Duration
	// BookmarkEvery is how often watches that asked for bookmarks get one. Default a minute.
	BookmarkEvery time.Duration
	// SharedReads lets Get and GetList return objects that share what they refer to with
	// the cache, as apiserver's own cache does: they must not be changed then, beyond
	// their own fields. Default: copies.
	SharedReads bool
	// Logger gets what watchcache.Options.Logger does, and what was left out.
	Logger *slog.Logger
}

const (
	defaultCapacity      = 100 << 10
	defaultRetention     = 75 * time.Second
	defaultBookmarkEvery = time.Minute

	// Kubernetes documents these: how long a read waits for a resource version, and how
	// long before its deadline a watch gets its last bookmark.
	freshWait    = 3 * time.Second
	deadlineLead = 2 * time.Second

	retryAfterSeconds = 1
)

// Store is a storage.Interface. It may be used concurrently.
type Store struct {
	// Interface has the writes, and what else is its business.
	storage.Interface

	config    Config
	versioner storage.Versioner
	cache     *watchcache.Cache[*element]
	indexes   indexes
	snapshots bool // exact reads from history; of a feature gate, when it was made

	ctx  context.Context // Run's, which Stop ends
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
}

var _ storage.Interface = (*Store)(nil)

// New returns a store, and begins to follow Config.Storage. It must be stopped.
//
// Errors: watchcache.ErrInvalidOption; what Config.Storage says of size estimation.
func New(config Config) (*Store, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	s := &Store{
		Interface: config.Storage,
		config:    config,
		versioner: config.Storage.Versioner(),
		indexes:   newIndexes(config.IndexerFuncs, config.Indexers, config.Logger),
		snapshots: utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot),
		done:      make(chan struct{}),
	}
	c, err := watchcache.New(watchcache.Options[*element]{
		Mirror:    true,
		Capacity:  config.Capacity,
		Retention: config.Retention,
		Stall:     ending(config.Stall),
		Relist:    watchcache.RelistExpire,
		Indexes:   s.indexes.functions(),
		Equal:     func(a, b *element) bool { return a.revision == b.revision },
		Publish:   s.publish,
		Logger:    config.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.cache = c
	if utilfeature.DefaultFeatureGate.Enabled(features.SizeBasedListCostEstimate) {
		if err := config.Storage.EnableResourceSizeEstimation(s.keys); err != nil {
			c.Close()
			return nil, fmt.Errorf("k8s: size estimation: %w", err)
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		if err := c.Run(s.ctx, newSource(&s.config, s.versioner)); err != nil && s.ctx.Err() == nil {
			config.Logger.Error("the store follows its storage no more", "resource", config.GroupResource.String(), "error", err)
		}
	}()
	return s, nil
}

// ending is a policy that ends whom the given one resyncs.
func ending(policy watchcache.StallPolicy) watchcache.StallPolicy {
	if policy == nil {
		return nil
	}
	return watchcache.StallFunc(policy.Limits(), func(s watchcache.Stall) watchcache.Verdict {
		if verdict := policy.Judge(s); verdict != watchcache.VerdictResync {
			return verdict
		}
		return watchcache.VerdictEvict
	})
}

func (c *Config) complete() error {
	missing := ""
	switch {
	case c.Storage == nil:
		missing = "Storage"
	case c.KeyFunc == nil:
		missing = "KeyFunc"
	case c.GetAttrs == nil:
		missing = "GetAttrs"
	case c.NewFunc == nil:
		missing = "NewFunc"
	case c.NewListFunc == nil:
		missing = "NewListFunc"
	}
	if missing != "" {
		return fmt.Errorf("%w: store.Config.%s is missing", watchcache.ErrInvalidOption, missing)
	}
	if !strings.HasSuffix(c.ResourcePrefix, "/") {
		c.ResourcePrefix += "/"
	}
	if len(c.ResourcePrefix) < 3 || !strings.HasPrefix(c.ResourcePrefix, "/") {
		return fmt.Errorf("%w: store.Config.ResourcePrefix is %q, and must be like /pods/", watchcache.ErrInvalidOption, c.ResourcePrefix)
	}
	if c.Capacity == 0 {
		c.Capacity = defaultCapacity
	}
	if c.Retention == 0 {
		c.Retention = defaultRetention
	}
	if c.BookmarkEvery == 0 {
		c.BookmarkEvery = defaultBookmarkEvery
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Stop ends all watches, and following. Reads are refused, or go to Config.Storage, from
// then on. It may be called more than once.
func (s *Store) Stop() {
	s.stop()
	s.cache.Close()
	<-s.done
}

// Wait waits until the store is ready.
func (s *Store) Wait(ctx context.Context) error { return s.cache.WaitReady(ctx) }

// Watchers tells about the watches that there are now: see [watchcache.Cache.Watchers].
func (s *Store) Watchers() iter.Seq[watchcache.WatcherInfo] { return s.cache.Watchers() }

// CacheStats tells about the cache: see [watchcache.Cache.Stats]. Stats is about what is
// stored.
func (s *Store) CacheStats() watchcache.Stats { return s.cache.Stats() }

func (s *Store) ready() bool {
	status, _ := s.cache.Status()
	return status.Ready && s.ctx.Err() == nil
}

// ReadinessCheck returns storage.ErrStorageNotReady until the first list is there. Later
// the store serves the last good state, however old, where a client has not asked for
// a newer one.
func (s *Store) ReadinessCheck() error {
	if !s.ready() {
		return storage.ErrStorageNotReady
	}
	return nil
}

// Delete goes to Config.Storage, with a copy of the cache's object as suggestion: the
// caller's may be older.
func (s *Store) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions) error {
	return s.Interface.Delete(ctx, key, out, preconditions, validateDeletion, s.suggestion(key), opts)
}

// GuaranteedUpdate goes to Config.Storage, with a copy of the cache's object as suggestion.
func (s *Store) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, s.suggestion(key))
}

// suggestion returns a copy, since storing an object changes its resource version; nil
// if there is none.
func (s *Store) suggestion(key string) runtime.Object {
	item, ok := s.cache.Get(key)
	if !ok {
		return nil
	}
	return item.Object.object.DeepCopyObject()
}

// keys is what size estimation asks for.
func (s *Store) keys(ctx context.Context) ([]string, error) {
	revision, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.waitFresh(ctx, revision); err != nil {
		return nil, err
	}
	snap := s.cache.Snapshot()
	keys := make([]string, 0, snap.Len())
	for item := range snap.All() {
		keys = append(keys, item.Key)
	}
	return keys, nil
}

// waitFresh waits until the cache is as new as a resource version.
//
// Errors: storage.IsTooLargeResourceVersion after three seconds; the context's cause.
func (s *Store) waitFresh(ctx context.Context, revision uint64) error {
	if revision <= s.cache.Position().Revision {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	err := s.cache.WaitRevision(limited, revision)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, watchcache.ErrClosed):
		return s.notReady()
	}
	return storage.NewTooLargeResourceVersionError(revision, s.cache.Position().Revision, retryAfterSeconds)
}

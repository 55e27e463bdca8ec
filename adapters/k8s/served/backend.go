package served

import (
	"context"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/watchcache/watchcache/adapters/k8s/store"
)

// backend is etcd's storage with a cache in front of it.
type backend struct {
	cached storage.Interface
	store  *store.Store // nil: the cache is apiserver's
	ready  func(context.Context) error
	closes []func() // in reverse
}

func newBackend(client *kubernetes.Client, opts *Options) (*backend, error) {
	b := &backend{}
	if err := b.open(client, opts); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *backend) open(client *kubernetes.Client, opts *Options) error {
	compactor := etcd3.NewCompactor(client.Client, 0, clock.RealClock{}, nil)
	b.closes = append(b.closes, compactor.Stop)
	r, versioner := opts.Resource, storage.APIObjectVersioner{}
	etcd, err := etcd3.New(client, compactor, codec, r.newObject, r.newList, "/registry", r.Prefix(), r.group(),
		identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(),
		etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		return err
	}
	b.closes = append(b.closes, etcd.Close)
	below := storage.Interface(etcd)
	if opts.Below != nil {
		below = opts.Below(below)
	}
	if opts.Cacher {
		return b.openCacher(below, r)
	}
	return b.openStore(below, r, opts.Store)
}

func (b *backend) openStore(below storage.Interface, r *Resource, change func(*store.Config)) error {
	config := store.Config{
		Storage:        below,
		ResourcePrefix: r.Prefix(),
		GroupResource:  r.group(),
		KeyFunc:        r.keyOf,
		GetAttrs:       r.attributes,
		NewFunc:        r.newObject,
		NewListFunc:    r.newList,
		IndexerFuncs:   r.triggers(),
	}
	if change != nil {
		change(&config)
	}
	s, err := store.New(config)
	if err != nil {
		return err
	}
	b.closes = append(b.closes, s.Stop)
	b.cached, b.store, b.ready = s, s, s.Wait
	return nil
}

func (b *backend) openCacher(below storage.Interface, r *Resource) error {
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             below,
		Versioner:           below.Versioner(),
		GroupResource:       r.group(),
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      r.Prefix(),
		KeyFunc:             r.keyOf,
		GetAttrsFunc:        r.attributes,
		NewFunc:             r.newObject,
		NewListFunc:         r.newList,
		IndexerFuncs:        r.triggers(),
		Codec:               codec,
		Indexers:            &cache.Indexers{},
		Clock:               clock.RealClock{},
	})
	if err != nil {
		return err
	}
	delegator := cacher.NewCacheDelegator(c, below)
	b.closes = append(b.closes, c.Stop, delegator.Stop)
	b.cached, b.ready = delegator, c.Wait
	return nil
}

// wait waits until the cache is ready, and until it is known that etcd can be asked for
// progress, which is found out in the background.
func (b *backend) wait(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !etcdfeature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return b.ready(ctx)
}

func (b *backend) close() {
	for i := len(b.closes) - 1; i >= 0; i-- {
		b.closes[i]()
	}
}

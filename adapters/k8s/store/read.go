package store

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/watchcache/watchcache"
)

// notReady is what lists and watches get that cannot be served, nor be left to etcd, which
// all clients at once would be too much for.
func (s *Store) notReady() error {
	return apierrors.NewTooManyRequests(fmt.Sprintf("%s: %v", s.config.GroupResource.String(), storage.ErrStorageNotReady), retryAfterSeconds)
}

// Get reads an object: with a resource version from the cache, when that has it or
// something newer; without one, or while the cache is not ready, from Config.Storage.
//
// Errors: storage.IsNotFound, with the revision that was read; after three seconds
// storage.IsTooLargeResourceVersion.
func (s *Store) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	if opts.ResourceVersion == "" || !s.ready() {
		return s.Interface.Get(ctx, key, opts, objPtr)
	}
	revision, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return err
	}
	key, err = storage.PrepareKey(s.config.ResourcePrefix, key, false)
	if err != nil {
		return err
	}
	into, err := conversion.EnforcePtr(objPtr)
	if err != nil {
		return err
	}
	if err := s.waitFresh(ctx, revision); err != nil {
		return err
	}
	snap := s.cache.Snapshot()
	item, ok := snap.Get(key)
	if !ok {
		into.SetZero()
		if opts.IgnoreNotFound {
			return nil
		}
		return storage.NewKeyNotFoundError(key, int64(snap.Position().Revision))
	}
	s.read(item.Object, into)
	return nil
}

// read sets an object, or an item of a list, to what the cache has.
func (s *Store) read(e *element, into reflect.Value) {
	object := e.object
	if !s.config.SharedReads {
		object = object.DeepCopyObject()
	}
	value := reflect.ValueOf(object)
	if into.Kind() != reflect.Pointer && into.Kind() != reflect.Interface {
		value = value.Elem()
	}
	into.Set(value)
}

// GetList lists objects. What it serves from the cache is in the order of keys:
//
//   - resource version "": as new as etcd is when it is called, which takes one small
//     request to etcd and the wait until the cache has caught up.
//   - "0": what the cache has. Limits are ignored.
//   - another: that or something newer; with Exact, or a limit, exactly that, as far as
//     history reaches.
//   - a continue token: the rest, at the revision of the first part.
//
// The rest is Config.Storage's: exact revisions that history has not, or etcd has
// compacted; lists of one key at an exact revision; consistent reads while etcd cannot be
// asked for progress, or when the cache does not catch up within three seconds; and,
// while the cache is not ready, what has a limit and no selector.
//
// Errors: 429 with Retry-After while the cache is not ready; 410, Expired; after three
// seconds storage.IsTooLargeResourceVersion.
func (s *Store) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	prepared, err := storage.PrepareKey(s.config.ResourcePrefix, key, opts.Recursive)
	if err != nil {
		return err
	}
	exact, from, err := storage.ValidateListOptions(prepared, s.versioner, opts)
	if err != nil {
		return err
	}
	serves, err := delegator.ShouldDelegateList(opts, helper{s})
	if err != nil {
		return err
	}
	if serves.ShouldDelegate {
		return s.Interface.GetList(ctx, key, opts, listObj)
	}
	if !s.ready() {
		if opts.Predicate.Limit > 0 && opts.Predicate.Empty() {
			return s.Interface.GetList(ctx, key, opts, listObj)
		}
		return s.notReady()
	}
	err = s.list(ctx, request{prepared, opts, uint64(exact), cmp.Or(from, prepared)}, listObj)
	switch {
	case apierrors.IsResourceExpired(err) && s.snapshots:
		return s.Interface.GetList(ctx, key, opts, listObj)
	case serves.ConsistentRead && storage.IsTooLargeResourceVersion(err):
		if utilfeature.DefaultFeatureGate.Enabled(features.ConsistentListFromCacheSkipTimeoutFallback) {
			return apierrors.NewTooManyRequests(err.Error(), retryAfterSeconds)
		}
		return s.Interface.GetList(ctx, key, opts, listObj)
	}
	return err
}

// helper tells delegator.ShouldDelegateList what the store can serve.
type helper struct{ s *Store }

// ShouldDelegateExactRV is of delegator.Helper.
func (h helper) ShouldDelegateExactRV(resourceVersion string, recursive bool) (delegator.Result, error) {
	if !recursive || !h.s.snapshots {
		return delegator.Result{ShouldDelegate: true}, nil
	}
	revision, err := h.s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return delegator.Result{}, err
	}
	return h.exact(revision), nil
}

// ShouldDelegateContinue is of delegator.Helper.
func (h helper) ShouldDelegateContinue(token string, recursive bool) (delegator.Result, error) {
	if !recursive || !h.s.snapshots {
		return delegator.Result{ShouldDelegate: true}, nil
	}
	_, revision, err := storage.DecodeContinue(token, h.s.config.ResourcePrefix)
	if err != nil {
		return delegator.Result{}, err
	}
	if revision > 0 {
		return h.exact(uint64(revision)), nil
	}
	return h.ShouldDelegateConsistentRead()
}

// ShouldDelegateConsistentRead is of delegator.Helper.
func (h helper) ShouldDelegateConsistentRead() (delegator.Result, error) {
	return delegator.Result{ConsistentRead: true, ShouldDelegate: !delegator.ConsistentReadSupported()}, nil
}

func (h helper) exact(revision uint64) delegator.Result {
	if revision > h.s.cache.Position().Revision { // to be waited for, by progress
		return delegator.Result{ShouldDelegate: !delegator.ConsistentReadSupported()}
	}
	return delegator.Result{ShouldDelegate: h.s.reaches(revision) != nil}
}

// reaches returns an error where history does not reach a revision, or etcd has compacted
// it, which is to be the same for all API servers.
func (s *Store) reaches(revision uint64) error {
	if int64(revision) < s.CompactRevision() || revision < s.cache.Oldest().Revision {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", revision))
	}
	return nil
}

// request is a list that the cache is to serve.
type request struct {
	key  string // what the keys of its objects begin with, or the key of the one
	opts storage.ListOptions
	// exact is the one revision that will do; 0: the newest.
	exact uint64
	// from is where it begins: key, or where the part before it has ended.
	from string
}

// part is what a list is made from.
type part struct {
	revision uint64
	items    iter.Seq[watchcache.Item[*element]] // in the order of keys
	most     int                                 // how many there are; 0 of an index, where it takes a look at each
}

func (s *Store) list(ctx context.Context, r request, listObj runtime.Object) error {
	itemsPtr, err := meta.GetItemsPtr(listObj)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(itemsPtr)
	if err != nil {
		return err
	}
	if items.Kind() != reflect.Slice {
		return fmt.Errorf("k8s: the items of a %T are not a slice", listObj)
	}
	r.opts.Predicate = withSelectors(r.opts.Predicate)
	predicate := &r.opts.Predicate
	from, err := s.part(ctx, r)
	if err != nil {
		return err
	}
	limit := 0
	if r.opts.ResourceVersion != "0" {
		limit = int(predicate.Limit)
	}
	room := 0
	if predicate.Empty() {
		room = from.most
		if limit > 0 {
			room = min(room, limit)
		}
	}
	found := reflect.MakeSlice(items.Type(), 0, room)
	last, more := "", false
	for item := range from.items {
		if limit > 0 && found.Len() == limit {
			more = true
			break
		}
		if !item.Object.matches(predicate) {
			continue
		}
		found = reflect.Append(found, reflect.Zero(items.Type().Elem()))
		s.read(item.Object, found.Index(found.Len()-1))
		last = item.Key
	}
	items.Set(found)
	token, remaining, err := storage.PrepareContinueToken(last, r.key, int64(from.revision), int64(from.most), more, r.opts)
	if err != nil {
		return err
	}
	if err := s.versioner.UpdateList(listObj, from.revision, token, remaining); err != nil {
		return err
	}
	predicate.SetShardInfoOnList(listObj)
	return nil
}

// withSelectors gives a predicate the selectors that it leaves out.
func withSelectors(p storage.SelectionPredicate) storage.SelectionPredicate {
	if p.Label == nil {
		p.Label = labels.Everything()
	}
	if p.Field == nil {
		p.Field = fields.Everything()
	}
	return p
}

// part waits until the cache has what is asked for, and finds it.
func (s *Store) part(ctx context.Context, r request) (part, error) {
	revision, err := r.exact, error(nil)
	switch {
	case revision > 0:
	case r.opts.ResourceVersion == "" && r.opts.ResourceVersionMatch == "": // a consistent read
		revision, err = s.GetCurrentResourceVersion(ctx)
	default:
		revision, err = s.versioner.ParseResourceVersion(r.opts.ResourceVersion)
	}
	if err != nil {
		return part{}, err
	}
	if err := s.waitFresh(ctx, revision); err != nil {
		return part{}, err
	}
	to := r.key + "\x00" // after the key, and before all others
	if r.opts.Recursive {
		to = strings.TrimSuffix(r.key, "/") + "0" // "0" comes after "/"
	}
	snap := s.cache.Snapshot()
	if r.exact > 0 {
		if err := s.reaches(revision); err != nil {
			return part{}, err
		}
		if snap, err = s.cache.SnapshotAt(revision); err != nil {
			return part{}, apierrors.NewResourceExpired(err.Error())
		}
	} else {
		revision = snap.Position().Revision
		if r.opts.Recursive && r.from == r.key {
			if index, ok := s.indexes.find(r.opts.Predicate.MatcherIndex(ctx)); ok {
				return part{revision, indexed(snap, index, r.key), 0}, nil
			}
		}
	}
	return part{revision, snap.Range(r.from, to), snap.Count(r.from, to)}, nil
}

func indexed(snap *watchcache.Snapshot[*element], index watchcache.IndexValue, prefix string) iter.Seq[watchcache.Item[*element]] {
	return func(yield func(watchcache.Item[*element]) bool) {
		for item := range snap.Index(index.Name, index.Value) {
			if strings.HasPrefix(item.Key, prefix) && !yield(item) {
				return
			}
		}
	}
}

package watchcachetest

import (
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/watchcache/watchcache"
)

// Writer writes to a cache and tells a [Checker]. Its methods are those of the
// cache, with the same errors. It lets one write through at a time, and must be
// the cache's only writer while the checker is used.
//
// A write that is refused must have changed nothing: if the cache's position or
// snapshot is another one after it, that is a [Violation] of line 12.
type Writer[T any] struct {
	mu    sync.Mutex
	check *Checker[T]
	cache *watchcache.Cache[T]
}

// NewWriter returns a writer. If the cache is ready, it tells the checker its
// state.
func NewWriter[T any](check *Checker[T], cache *watchcache.Cache[T]) *Writer[T] {
	if status, _ := cache.Status(); status.Ready {
		check.Began(cache.Snapshot())
	}
	return &Writer[T]{check: check, cache: cache}
}

// Put is [watchcache.Cache.Put].
func (w *Writer[T]) Put(key string, object T) (revision uint64, err error) {
	changes := []watchcache.Change[T]{{Key: key, Object: object}}
	err = w.write(func() error {
		revision, err = w.cache.Put(key, object)
		return err
	}, func(at watchcache.Position) { w.check.Committed(at, changes...) })
	return revision, err
}

// Delete is [watchcache.Cache.Delete].
func (w *Writer[T]) Delete(key string) (revision uint64, err error) {
	changes := []watchcache.Change[T]{{Key: key, Delete: true}}
	err = w.write(func() error {
		revision, err = w.cache.Delete(key)
		return err
	}, func(at watchcache.Position) { w.check.Committed(at, changes...) })
	return revision, err
}

// Apply is [watchcache.Cache.Apply].
func (w *Writer[T]) Apply(commit watchcache.Commit[T]) (revision uint64, err error) {
	changes := slices.Clone(commit.Changes)
	err = w.write(func() error {
		revision, err = w.cache.Apply(commit)
		return err
	}, func(at watchcache.Position) {
		if len(changes) == 0 {
			w.check.Progressed(at)
		} else {
			w.check.Committed(at, changes...)
		}
	})
	return revision, err
}

// Progress is [watchcache.Cache.Progress].
func (w *Writer[T]) Progress(revision uint64) error {
	return w.write(func() error { return w.cache.Progress(revision) }, w.check.Progressed)
}

// Replace is [watchcache.Cache.Replace].
func (w *Writer[T]) Replace(at watchcache.Position, items iter.Seq2[watchcache.Item[T], error]) error {
	var listed []watchcache.Item[T]
	noting := func(yield func(watchcache.Item[T], error) bool) {
		for item, err := range items {
			listed = append(listed, item)
			if !yield(item, err) {
				return
			}
		}
	}
	return w.write(func() error { return w.cache.Replace(at, noting) },
		func(at watchcache.Position) { w.check.Replaced(at, listed...) })
}

// write has one write through, and tells the checker what became of it.
func (w *Writer[T]) write(do func() error, tell func(at watchcache.Position)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, at := w.cache.Snapshot(), w.cache.Position()
	err := do()
	if err == nil {
		tell(w.cache.Position())
		return nil
	}
	if now := w.cache.Position(); now != at || w.cache.Snapshot() != before {
		w.check.mu.Lock()
		defer w.check.mu.Unlock()
		w.check.note(&Violation{Contract: 12, Why: fmt.Sprintf("a write that was refused has changed something (%v)", err),
			Expected: fmt.Sprintf("the same snapshot, at %v", at), Got: fmt.Sprintf("another snapshot, or another position than before: %v", now)})
	}
	return err
}

package store

import (
	"log/slog"
	"sync/atomic"

	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/watchcache/watchcache"
)

// indexes are those of Config.IndexerFuncs and Config.Indexers, under the names that
// lists use: storage.FieldIndex of a field.
type indexes map[string]*index

type index struct {
	values func(*element) []string
	// broken: an object's values could not be told, so that it would be missing in
	// what the index finds. It is not asked any more.
	broken atomic.Bool
}

func newIndexes(triggers storage.IndexerFuncs, indexers *cache.Indexers, logger *slog.Logger) indexes {
	all := indexes{}
	add := func(name string, values func(*element) ([]string, error)) {
		ix := &index{}
		ix.values = func(e *element) []string {
			found, err := values(e)
			if err != nil && !ix.broken.Swap(true) {
				logger.Error("an index is not used any more: it failed", "index", name, "error", err)
			}
			return found
		}
		all[name] = ix
	}
	for field, value := range triggers {
		if value != nil {
			add(storage.FieldIndex(field), func(e *element) ([]string, error) {
				return []string{value(e.object)}, nil
			})
		}
	}
	if indexers != nil {
		for name, values := range *indexers {
			add(name, func(e *element) ([]string, error) { return values(e.object) })
		}
	}
	return all
}

func (all indexes) functions() map[string]func(string, *element) []string {
	functions := map[string]func(string, *element) []string{}
	for name, ix := range all {
		functions[name] = func(_ string, e *element) []string { return ix.values(e) }
	}
	return functions
}

// find returns the first index that has all that a predicate can match.
func (all indexes) find(matches []storage.MatchValue) (watchcache.IndexValue, bool) {
	for _, match := range matches {
		if ix := all[match.IndexName]; ix != nil && !ix.broken.Load() {
			return watchcache.IndexValue{Name: match.IndexName, Value: match.Value}, true
		}
	}
	return watchcache.IndexValue{}, false
}

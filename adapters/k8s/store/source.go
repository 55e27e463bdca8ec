package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s"
)

const (
	// pageSize is how many objects are listed at a time: as many as apiserver's own
	// cache asks for.
	pageSize = 10000
	// A watch that fails without progress for so long is not tried again from where it
	// is: what cannot be read there may be gone.
	unreadableFor = 30 * time.Second
)

// stores counts stores, so that each has its own stream to etcd.
var stores atomic.Uint64

// source follows a storage.Interface.
type source struct {
	watchcache.Source[*element]
	from *lister

	// failing is since when the watch has failed without a word in between. It belongs
	// to Run's goroutine, which calls Watch, one after the other.
	failing time.Time
}

func newSource(config *Config, versioner storage.Versioner) *source {
	from := &lister{
		storage:  config.Storage,
		prefix:   config.ResourcePrefix,
		newList:  config.NewListFunc,
		metadata: metadata.Pairs("watchcache", fmt.Sprint(config.ResourcePrefix, stores.Add(1))),
	}
	return &source{
		from: from,
		Source: k8s.NewSource(from, k8s.SourceOptions[*element]{
			PageSize: pageSize,
			Key:      config.KeyFunc,
			Convert: func(object runtime.Object) (*element, error) {
				return newElement(object, config.GetAttrs, versioner)
			},
			Invalid: func(key string, err error) {
				config.Logger.Error("an object is left out", "resource", config.GroupResource.String(), "key", key, "error", err)
			},
		}),
	}
}

// Watch ends as expired, so that the state is listed again, where watching on is of no
// use: when an object cannot be read that was deleted, and when nothing else helps.
func (s *source) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[*element], error] {
	return func(yield func(watchcache.SourceEvent[*element], error) bool) {
		for ev, err := range s.Source.Watch(ctx, after) {
			switch {
			case err == nil:
				s.failing = time.Time{}
			case errors.Is(err, watchcache.ErrExpired), ctx.Err() != nil:
			case apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError:
				err = fmt.Errorf("%w: %w", watchcache.ErrExpired, err)
			case s.failing.IsZero():
				s.failing = time.Now()
			case time.Since(s.failing) > unreadableFor:
				s.failing = time.Time{}
				err = fmt.Errorf("%w: k8s: the watch has failed for %v: %w", watchcache.ErrExpired, unreadableFor, err)
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// RequestProgress asks etcd to tell, on the source's stream, how far it is.
func (s *source) RequestProgress(ctx context.Context) error {
	return s.from.storage.RequestWatchProgress(s.from.stream(ctx))
}

// lister lists and watches a storage.Interface as client-go does a server.
type lister struct {
	storage storage.Interface
	prefix  string
	newList func() runtime.Object
	// metadata chooses the stream to etcd: progress is told on it when all its watchers
	// have what there is, so that it has but one.
	metadata metadata.MD
}

func (l *lister) stream(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, l.metadata)
}

// ListWithContext lists all objects, or a page of them.
func (l *lister) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	opts := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	opts.Predicate.Limit, opts.Predicate.Continue = options.Limit, options.Continue
	list := l.newList()
	if err := l.storage.GetList(l.stream(ctx), l.prefix, opts, list); err != nil {
		return nil, err
	}
	return list, nil
}

// WatchWithContext watches all objects, with etcd's own notices of progress.
func (l *lister) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	opts := storage.ListOptions{
		ResourceVersion: options.ResourceVersion,
		Predicate:       storage.Everything,
		Recursive:       true,
		ProgressNotify:  true,
	}
	opts.Predicate.AllowWatchBookmarks = options.AllowWatchBookmarks
	return l.storage.Watch(l.stream(ctx), l.prefix, opts)
}

// List is ListWithContext without one.
func (l *lister) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without one.
func (l *lister) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

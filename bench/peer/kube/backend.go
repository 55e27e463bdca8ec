package kube

import (
	"context"
	"errors"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// backend is the storage that the cacher lists once and then watches. It refuses to
// list by watching, so that the cacher's reflector lists.
type backend struct {
	storage.Interface // nil: what is not here is not called

	initial  []example.Pod
	revision uint64 // of the one writer
	events   chan watch.Event
}

func (b *backend) IsWatchListSemanticsUnSupported() bool { return true }

func (b *backend) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (b *backend) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	pods := list.(*example.PodList)
	pods.Items = b.initial
	pods.ResourceVersion = strconv.FormatUint(b.revision, 10)
	return nil
}

func (b *backend) Watch(_ context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, errors.New("no lists by watching")
	}
	return stream{b.events}, nil
}

func (b *backend) GetCurrentResourceVersion(context.Context) (uint64, error) { return b.revision, nil }
func (b *backend) RequestWatchProgress(context.Context) error                { return nil }
func (b *backend) ReadinessCheck() error                                     { return nil }
func (b *backend) CompactRevision() int64                                    { return 0 }
func (b *backend) EnableResourceSizeEstimation(storage.KeysFunc) error       { return nil }
func (b *backend) Stats(context.Context) (storage.Stats, error)              { return storage.Stats{}, nil }

type stream struct{ events chan watch.Event }

func (s stream) ResultChan() <-chan watch.Event { return s.events }
func (s stream) Stop()                          {}

// Package kube is the watch cache of a Kubernetes API server as a peer:
// k8s.io/apiserver/pkg/storage/cacher, before a storage that is a list and a channel.
package kube

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/klog/v2"

	"github.com/watchcache/watchcache/bench/peer"
)

// Peer is the API server's watch cache. Its writes come back before it has seen
// them, as etcd's do.
var Peer = peer.Peer{
	Name:  "k8s-cacher",
	What:  "k8s.io/apiserver/pkg/storage/cacher, with a trigger index, behind a fake storage",
	Open:  open,
	Burst: 10, // the channel that a new watcher has
}

const (
	prefix    = "/pods/"
	namespace = "bench"
	nodeName  = "spec.nodeName" // the trigger index: an object's node is its key
)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	klog.SetOutput(io.Discard) // it says so when it ends a watcher
	klog.LogToStderr(false)
}

type store struct {
	backend *backend
	cacher  *cacher.Cacher
	known   map[string]bool
}

func open(cfg peer.Config) (peer.Store, error) {
	s := &store{known: map[string]bool{}}
	s.backend = &backend{events: make(chan watch.Event, 100), revision: 1}
	for _, o := range cfg.Initial {
		s.known[o.Key] = true
		s.backend.revision++
		s.backend.initial = append(s.backend.initial, *pod(o, s.backend.revision))
	}
	var err error
	s.cacher, err = cacher.NewCacherFromConfig(cacher.Config{
		Storage:             s.backend,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       schema.GroupResource{Resource: "pods"},
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      prefix,
		KeyFunc:             func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, obj) },
		GetAttrsFunc:        attributes,
		IndexerFuncs:        storage.IndexerFuncs{nodeName: func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName }},
		NewFunc:             func() runtime.Object { return &example.Pod{} },
		NewListFunc:         func() runtime.Object { return &example.PodList{} },
		Codec:               codecs.LegacyCodec(examplev1.SchemeGroupVersion),
	})
	if err != nil {
		return nil, err
	}
	if err := s.cacher.Wait(context.Background()); err != nil {
		return nil, err
	}
	s.backend.initial = nil
	return s, nil
}

func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	p, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%T is no pod", obj)
	}
	return p.Labels, fields.Set{"metadata.name": p.Name, "metadata.namespace": p.Namespace, nodeName: p.Spec.NodeName}, nil
}

// pod carries an object where the cacher's wrapped objects can still show it.
func pod(o *peer.Object, revision uint64) *example.Pod {
	return &example.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: o.Key, ResourceVersion: strconv.FormatUint(revision, 10),
			Generation: o.Seq, CreationTimestamp: metav1.Time{Time: time.Unix(0, o.Sent)},
		},
		Spec: example.PodSpec{NodeName: o.Key},
	}
}

func (s *store) Put(o *peer.Object) error {
	s.backend.revision++
	kind := watch.Modified
	if !s.known[o.Key] {
		kind, s.known[o.Key] = watch.Added, true
	}
	s.backend.events <- watch.Event{Type: kind, Object: pod(o, s.backend.revision)}
	return nil
}

func (s *store) Delete(key string) error {
	if !s.known[key] {
		return nil
	}
	delete(s.known, key)
	s.backend.revision++
	s.backend.events <- watch.Event{Type: watch.Deleted, Object: pod(&peer.Object{Key: key}, s.backend.revision)}
	return nil
}

func (s *store) Revision() uint64 { return s.backend.revision }

func (s *store) Close() { s.cacher.Stop() }

func (s *store) Watch(from peer.Start) (peer.Watcher, error) {
	opts := storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes, IndexFields: []string{nodeName},
	}}
	if from.Key != "" {
		opts.Predicate.Field = fields.OneTermEqualSelector(nodeName, from.Key)
	}
	switch {
	case from.State:
		opts.ResourceVersion = "0"
	case from.After > 0:
		opts.ResourceVersion = strconv.FormatUint(from.After, 10)
	default:
		opts.ResourceVersion = strconv.FormatUint(s.backend.revision, 10)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w, err := s.cacher.Watch(ctx, prefix, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	return &watcher{w, cancel}, nil
}

type watcher struct {
	watch  watch.Interface
	cancel context.CancelFunc
}

func (w *watcher) Each(visit func(seq, sent int64) bool) error {
	defer w.Stop()
	for ev := range w.watch.ResultChan() {
		switch ev.Type {
		case watch.Added, watch.Modified:
			o := ev.Object.(metav1.Object)
			if !visit(o.GetGeneration(), o.GetCreationTimestamp().UnixNano()) {
				return nil
			}
		case watch.Error:
			return fmt.Errorf("cacher: %v", ev.Object)
		}
	}
	return peer.ErrEnded
}

func (w *watcher) Stop() {
	w.cancel()
	w.watch.Stop()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s"
)

// pod is what this program wants to know of a pod, and all that it keeps of one.
type pod struct {
	Node  string
	Phase corev1.PodPhase
}

func (p pod) String() string {
	if p.Node == "" {
		return fmt.Sprintf("%s, on no node", p.Phase)
	}
	return fmt.Sprintf("%s on %s", p.Phase, p.Node)
}

// podOf is the source's Convert.
func podOf(object runtime.Object) (pod, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return pod{}, fmt.Errorf("a %T is no pod", object)
	}
	return pod{Node: p.Spec.NodeName, Phase: p.Status.Phase}, nil
}

// mirror follows a cluster's pods until its time is over, or ctx ends.
func mirror(ctx context.Context, out io.Writer, config *rest.Config, s settings) error {
	out = &lines{to: out}
	ctx, stop := context.WithTimeoutCause(ctx, s.runFor, errOver)
	defer stop()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := watchcache.New(watchcache.Options[pod]{Mirror: true})
	if err != nil {
		return err
	}
	defer pods.Close()
	from := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", s.namespace, fields.Everything())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = pods.Run(ctx, k8s.NewSource[pod](from, k8s.SourceOptions[pod]{Convert: podOf})) })
	if err := pods.WaitReady(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d pods at %v\n", pods.Snapshot().Len(), pods.Position())
	running.Go(func() { stall(ctx, out, pods, s.limit) })
	return printChanges(ctx, out, pods)
}

var errOver = errors.New("the time is over")

// printChanges prints the state, and then each change.
func printChanges(ctx context.Context, out io.Writer, pods *watchcache.Cache[pod]) error {
	w, err := pods.Watch(ctx, watchcache.WatchOptions[pod]{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for ev := range w.Events() {
		switch ev.Type {
		case watchcache.Added:
			fmt.Fprintf(out, "  %s: %v\n", ev.Key, ev.Object)
		case watchcache.Modified:
			if ev.Object != ev.Prev { // what this program knows of it
				fmt.Fprintf(out, "  %s: %v -> %v\n", ev.Key, ev.Prev, ev.Object)
			}
		case watchcache.Deleted:
			fmt.Fprintf(out, "  %s: deleted, was %v\n", ev.Key, ev.Object)
		case watchcache.Synced:
			fmt.Fprintf(out, "that was the state at %d; now what changes\n", ev.Revision)
		}
	}
	if err := w.Err(); !errors.Is(err, errOver) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// stall watches, takes one event, and then nothing more until its watcher has been ended.
func stall(ctx context.Context, out io.Writer, pods *watchcache.Cache[pod], limit time.Duration) {
	w, err := pods.Watch(ctx, watchcache.WatchOptions[pod]{
		Stall: watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: limit}},
	})
	if err != nil {
		fmt.Fprintln(out, "the watcher that was to stall:", err)
		return
	}
	defer w.Stop()
	for range w.Events() {
		<-w.Done()
	}
	fmt.Fprintf(out, "the watcher that stalled: %v\n", w.Err())
}

// lines is an io.Writer for several goroutines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

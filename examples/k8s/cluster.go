package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watchcache/watchcache/adapters/k8s/served"
)

const (
	replicas = 5
	step     = 200 * time.Millisecond // between the changes of pods
)

// withServer runs something with an API server in whose cluster pods come and go.
func withServer(ctx context.Context, use func(context.Context, *rest.Config) error) error {
	server, err := served.Start(ctx, served.Options{Resource: served.Pods})
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := kubernetes.NewForConfig(server.ClientConfig(true))
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods("default")
	for i := range replicas {
		if err := create(ctx, pods, i); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	var living sync.WaitGroup
	defer living.Wait()
	defer stop(nil)
	living.Go(func() {
		if err := live(ctx, pods); err != nil && ctx.Err() == nil {
			stop(err) // which ends what uses it, with that reason
		}
	})
	return use(ctx, server.ClientConfig(true))
}

// live is the cluster's life: one pod after another is scheduled, runs, and is replaced.
func live(ctx context.Context, pods typed.PodInterface) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for i := 0; ; i++ {
		for _, change := range []func() error{
			func() error { return set(ctx, pods, i, corev1.PodPending) },
			func() error { return set(ctx, pods, i, corev1.PodRunning) },
			func() error { return pods.Delete(ctx, name(i), metav1.DeleteOptions{}) },
			func() error { return create(ctx, pods, i+replicas) },
		} {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := change(); err != nil {
				return err
			}
		}
	}
}

func name(i int) string { return fmt.Sprintf("web-%d", i) }

func podNamed(i int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name(i)}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

func create(ctx context.Context, pods typed.PodInterface, i int) error {
	_, err := pods.Create(ctx, podNamed(i), metav1.CreateOptions{})
	return err
}

// set puts a pod on a node, in a phase.
func set(ctx context.Context, pods typed.PodInterface, i int, phase corev1.PodPhase) error {
	p := podNamed(i)
	p.Spec.NodeName, p.Status.Phase = fmt.Sprintf("node-%d", i%3), phase
	_, err := pods.Update(ctx, p, metav1.UpdateOptions{})
	return err
}

package k8s_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	clienttesting "k8s.io/client-go/tools/cache/testing"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s"
)

// A mirror of the pods of a cluster, by what is wanted of them. Against a cluster the
// ListWatch is cache.NewListWatchFromClient(clientset.CoreV1().RESTClient(), "pods", "",
// fields.Everything()), or that of a dynamic client's resource.
func ExampleNewSource() {
	server := clienttesting.NewFakeControllerSource() // in place of a cluster
	server.Add(pod("web-1", "node-a"))
	server.Add(pod("web-2", "node-b"))

	nodes, err := watchcache.New(watchcache.Options[string]{Mirror: true})
	if err != nil {
		panic(err)
	}
	source := k8s.NewSource[string](server, k8s.SourceOptions[string]{
		Convert: func(object runtime.Object) (string, error) { return object.(*corev1.Pod).Spec.NodeName, nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		nodes.Run(ctx, source)
	}()

	w, err := nodes.Watch(ctx, watchcache.WatchOptions[string]{}) // waits for the first listing
	if err != nil {
		panic(err)
	}
	for event, err := range w.Events() {
		if err != nil {
			panic(err)
		}
		fmt.Println(event.Type, event.Key, event.Object)
		if event.Type == watchcache.Synced {
			break
		}
	}
	cancel()
	<-done
	nodes.Close()
	server.Shutdown()
	// Output:
	// Added default/web-1 node-a
	// Added default/web-2 node-b
	// Synced
}

// An informer that follows a cache of the same process.
func ExampleNewListerWatcher() {
	pods, err := watchcache.New(watchcache.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	pods.Put("default/web-1", pod("web-1", "node-a"))

	from, err := k8s.NewListerWatcher(pods, k8s.ListerWatcherOptions[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	seen := make(chan string)
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: from,
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { seen <- object.(*corev1.Pod).Name },
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	fmt.Println(<-seen)
	pods.Put("default/web-2", pod("web-2", "node-b"))
	fmt.Println(<-seen)
	fmt.Println(len(store.List()), "pods")
	cancel()
	<-done
	pods.Close()
	// Output:
	// web-1
	// web-2
	// 2 pods
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

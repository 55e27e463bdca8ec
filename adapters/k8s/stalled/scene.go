package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s/served"
	"github.com/watchcache/watchcache/adapters/k8s/store"
)

const (
	namespace = "default"
	// buffer is that of sockets, at both ends, and of streams in HTTP/2. What is in
	// buffers is not waited for.
	buffer = 32 << 10
	// watchTimeout is what clients ask for.
	watchTimeout = time.Hour
	writers      = 8
	// patience is how long what must happen is waited for.
	patience = 30 * time.Second
)

// size is how large a run is.
type size struct {
	objects, bytes, clients int
	limit                   time.Duration // of the store's policy, and of writes by half more
	look                    time.Duration
}

// arrangement is what serves.
type arrangement struct {
	cacher  bool
	limited bool // writes to the network have a limit
}

var arrangements = []arrangement{{cacher: true}, {cacher: true, limited: true}, {}, {limited: true}}

// String is the heading of a column.
func (a arrangement) String() string {
	name := "Store"
	if a.cacher {
		name = "cacher"
	}
	if a.limited {
		name += "+limit"
	}
	return name
}

func protocol(http2 bool) string {
	if http2 {
		return "HTTP/2"
	}
	return "HTTP/1.1"
}

// scene is a server with its objects, and clients of their own connections.
type scene struct {
	*served.Server
	size  size
	http2 bool
}

func open(ctx context.Context, s size, a arrangement, http2 bool, change func(*store.Config)) (*scene, error) {
	opts := served.Options{Cacher: a.cacher, Store: change, WriteBuffer: buffer}
	if a.limited {
		opts.WriteLimit = s.limit + s.limit/2
	}
	server, err := served.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	sc := &scene{Server: server, size: s, http2: http2}
	if err := sc.fill(ctx); err != nil {
		server.Close()
		return nil, err
	}
	return sc, nil
}

// evictInitial is the policy for those that stall in their initial events. History lasts
// for as long as the slow reader needs.
func evictInitial(s size) func(*store.Config) {
	return func(c *store.Config) {
		c.Stall = watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: s.limit}}
		c.Retention = 3 * s.limit
	}
}

// client returns a client with connections of its own.
func (sc *scene) client() (typed.ConfigMapInterface, error) {
	config := sc.ClientConfig(sc.http2)
	served.SmallBuffers(config, buffer)
	c, err := typed.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return c.ConfigMaps(namespace), nil
}

// object returns an object whose content cannot be compressed.
func (sc *scene) object(i int) *corev1.ConfigMap {
	content := make([]byte, sc.size.bytes)
	_, _ = rand.Read(content) // never fails
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%05d", i)},
		BinaryData: map[string][]byte{"content": content},
	}
}

// fill creates the objects.
func (sc *scene) fill(ctx context.Context) error {
	return sc.each(func(c typed.ConfigMapInterface, i int) error {
		_, err := c.Create(ctx, sc.object(i), metav1.CreateOptions{})
		return err
	})
}

// rewrite gives all objects another content, so that what stalled watches hold is old.
func (sc *scene) rewrite(ctx context.Context) error {
	return sc.each(func(c typed.ConfigMapInterface, i int) error {
		_, err := c.Update(ctx, sc.object(i), metav1.UpdateOptions{})
		return err
	})
}

func (sc *scene) each(write func(typed.ConfigMapInterface, int) error) error {
	errs := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			var c typed.ConfigMapInterface
			c, errs[w] = sc.client()
			for i := w; i < sc.size.objects && errs[w] == nil; i += writers {
				errs[w] = write(c, i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// watchList opens the watch of the issue: the state, a bookmark, and then changes.
func (sc *scene) watchList(ctx context.Context) (watch.Interface, error) {
	c, err := sc.client()
	if err != nil {
		return nil, err
	}
	return c.Watch(ctx, metav1.ListOptions{
		ResourceVersion:      "0",
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents:    new(true),
		AllowWatchBookmarks:  true,
		TimeoutSeconds:       new(int64(watchTimeout.Seconds())),
	})
}

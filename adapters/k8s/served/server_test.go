package served_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/watchcache/watchcache/adapters/k8s/served"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what apiserver and client-go say of each start and end
	goleak.VerifyTestMain(m)
}

// within is how long tests wait for what must happen.
const within = 30 * time.Second

func start(t *testing.T, opts served.Options) *served.Server {
	t.Helper()
	s, err := served.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, s *served.Server, http2 bool) typed.ConfigMapInterface {
	t.Helper()
	c, err := typed.NewForConfig(s.ClientConfig(http2))
	if err != nil {
		t.Fatal(err)
	}
	return c.ConfigMaps("default")
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
}

// TestServer: what clients do with a resource works, whatever serves it.
func TestServer(t *testing.T) {
	for _, c := range []struct {
		name          string
		cacher, http2 bool
	}{
		{"Store over HTTP1.1", false, false},
		{"Store over HTTP2", false, true},
		{"cacher over HTTP1.1", true, false},
		{"cacher over HTTP2", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, served.Options{Cacher: c.cacher})
			defer s.Close()
			if (s.Store() == nil) != c.cacher {
				t.Errorf("Store is %v", s.Store())
			}
			life(t, client(t, s, c.http2))
		})
	}
}

func life(t *testing.T, c typed.ConfigMapInterface) {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	created, err := c.Create(ctx, configMap("a", "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.UID == "" || created.CreationTimestamp.IsZero() {
		t.Errorf("the server gave neither identity nor time: %v", created.ObjectMeta)
	}
	if _, err := c.Create(ctx, configMap("a", "1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second creation: %v", err)
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	updated := created.DeepCopy()
	updated.Data["value"] = "2"
	if updated, err = c.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Update(ctx, created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what is old: %v", err)
	}
	listed, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(listed.Items) != 1 || listed.Items[0].ResourceVersion != updated.ResourceVersion {
		t.Errorf("the list is %v", listed.Items)
	}
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is deleted: %v", err)
	}
	for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
		ev, open := <-w.ResultChan()
		if !open || ev.Type != want || ev.Object.(*corev1.ConfigMap).Data["value"] != "2" {
			t.Fatalf("the watch has %v, open %t, and should have %s", ev, open, want)
		}
	}
}

func until(t *testing.T, what string, happens func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !happens(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", what, within)
		}
	}
}

// TestPodsOfANode: a watch of one node's pods has them come and go.
func TestPodsOfANode(t *testing.T) {
	for _, cacher := range []bool{false, true} {
		s := start(t, served.Options{Resource: served.Pods, Cacher: cacher})
		defer s.Close()
		of, err := typed.NewForConfig(s.ClientConfig(true))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		c := of.Pods("default")
		created, err := c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion, FieldSelector: "spec.nodeName=blue"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for _, step := range []struct {
			node string
			want watch.EventType
		}{{"red", ""}, {"blue", watch.Added}, {"blue", watch.Modified}, {"red", watch.Deleted}} {
			pod := created.DeepCopy()
			pod.ResourceVersion, pod.Spec.NodeName = "", step.node
			pod.Annotations = map[string]string{"step": string(step.want)} // a change in any case
			if _, err := c.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if step.want == "" {
				continue
			}
			if ev, open := <-w.ResultChan(); !open || ev.Type != step.want {
				t.Fatalf("cacher=%t: %v, open %t, want %s", cacher, ev.Type, open, step.want)
			}
		}
		if _, err := c.List(ctx, metav1.ListOptions{FieldSelector: "spec.hostname=a"}); !apierrors.IsBadRequest(err) {
			t.Errorf("a field that nobody knows: %v", err)
		}
	}
}

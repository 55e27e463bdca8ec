package store_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	etcd3testing "k8s.io/apiserver/pkg/storage/etcd3/testing"
)

// TestSharedLeaseExpiresAtOnce: one lease deletes several keys at one revision.
func TestSharedLeaseExpiresAtOnce(t *testing.T) {
	f := setup(t, ours)
	p := create(t, f, pod("ns", "stays", ""))
	const doomed = 30
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: p.ResourceVersion, Recursive: true})
	for i := range doomed {
		out := &example.Pod{}
		q := pod("ns", fmt.Sprint("doomed", i), "")
		if err := f.Create(t.Context(), keyOf(q), q, out, 1); err != nil {
			t.Fatal(err)
		}
		expectEvent(t, w, watch.Added, out)
	}
	gone := map[string]bool{}
	for len(gone) < doomed {
		ev := next(t, w)
		if ev.Type != watch.Deleted || gone[ev.Object.(*example.Pod).Name] {
			t.Fatalf("took %s of %s", ev.Type, ev.Object.(*example.Pod).Name)
		}
		gone[ev.Object.(*example.Pod).Name] = true
	}
	list := &example.PodList{}
	if err := f.GetList(t.Context(), prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list); err != nil || len(list.Items) != 1 {
		t.Errorf("%d pods are left (%v), want 1", len(list.Items), err)
	}
}

// TestResumesAfterASharedRevision: who watches from a revision at which many keys went, in
// several parts, gets what came after it, and nothing of it.
func TestResumesAfterASharedRevision(t *testing.T) {
	f := setup(t, ours)
	lease, err := f.etcd.Grant(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	const doomed = 30
	for i := range doomed {
		q := pod("ns", fmt.Sprint("doomed", i), "")
		create(t, f, q)
		key := etcd3testing.PathPrefix() + keyOf(q)
		kv, err := f.etcd.Get(t.Context(), key)
		if err != nil || len(kv.Kvs) != 1 {
			t.Fatal(err, kv)
		}
		if _, err := f.etcd.Put(t.Context(), key, string(kv.Kvs[0].Value), clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	stays := create(t, f, pod("ns", "stays", ""))
	w := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: stays.ResourceVersion, Recursive: true})
	if _, err := f.etcd.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	var last string
	for range doomed {
		last = next(t, w).Object.(*example.Pod).ResourceVersion
	}
	again := watching(t, f, t.Context(), prefix, storage.ListOptions{ResourceVersion: last, Recursive: true})
	expectEvent(t, again, watch.Added, create(t, f, pod("ns", "later", "")))
}

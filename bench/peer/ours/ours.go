// Package ours is this library as a peer.
package ours

import (
	"context"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/bench/peer"
)

// Peer is this library.
var Peer = peer.Peer{
	Name: "watchcache",
	What: "this library",
	Open: open,
}

type store struct {
	cache *watchcache.Cache[*peer.Object]
}

func open(cfg peer.Config) (peer.Store, error) {
	c, err := watchcache.New(watchcache.Options[*peer.Object]{Capacity: cfg.History})
	if err != nil {
		return nil, err
	}
	changes := make([]watchcache.Change[*peer.Object], len(cfg.Initial))
	for i, o := range cfg.Initial {
		changes[i] = watchcache.Change[*peer.Object]{Key: o.Key, Object: o}
	}
	if len(changes) > 0 {
		if _, err := c.Apply(watchcache.Commit[*peer.Object]{Changes: changes}); err != nil {
			return nil, err
		}
	}
	return &store{c}, nil
}

func (s *store) Put(o *peer.Object) error {
	_, err := s.cache.Put(o.Key, o)
	return err
}

func (s *store) Delete(key string) error {
	_, err := s.cache.Delete(key)
	return err
}

func (s *store) Revision() uint64 { return s.cache.Position().Revision }
func (s *store) Close()           { s.cache.Close() }

func (s *store) Watch(from peer.Start) (peer.Watcher, error) {
	opts := watchcache.WatchOptions[*peer.Object]{Key: from.Key}
	switch {
	case from.After > 0:
		opts.Start = watchcache.AfterRevision(from.After)
	case !from.State:
		opts.Start = watchcache.FromNow()
	}
	w, err := s.cache.Watch(context.Background(), opts)
	if err != nil {
		return nil, err
	}
	return watcher{w}, nil
}

type watcher struct {
	*watchcache.Watcher[*peer.Object]
}

func (w watcher) Each(visit func(seq, sent int64) bool) error {
	for ev, err := range w.Events() {
		if err != nil {
			return err
		}
		if ev.Type > watchcache.Modified {
			continue // a deletion, or a marker
		}
		if !visit(ev.Object.Seq, ev.Object.Sent) {
			return nil
		}
	}
	return nil
}

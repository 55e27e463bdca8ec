// Package handmade is what people write when they have no library: a map of
// channels behind a mutex, and a ring behind a condition variable.
package handmade

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/watchcache/watchcache/bench/peer"
)

const buffer = 100 // of a watcher's channel

const noHistory = "has no history"

// Block is the map of channels whose writer waits for a watcher that is full.
var Block = peer.Peer{
	Name:   "channels-block",
	What:   "mutex and a map of channels of 100; the writer waits",
	Open:   func(cfg peer.Config) (peer.Store, error) { return newChannels(cfg, false), nil },
	Cannot: map[peer.Case]string{peer.Resume: noHistory, peer.Slow: "one watcher that stalls blocks the writer, and with it everybody, for good"},
}

// Drop is the map of channels whose writer leaves out a watcher that is full.
var Drop = peer.Peer{
	Name:   "channels-drop",
	What:   "mutex and a map of channels of 100; what does not fit is lost",
	Open:   func(cfg peer.Config) (peer.Store, error) { return newChannels(cfg, true), nil },
	Burst:  buffer,
	Cannot: map[peer.Case]string{peer.Resume: noHistory},
}

type channels struct {
	drop bool

	mu       sync.Mutex
	state    map[string]*peer.Object
	watchers map[*channel]struct{}
	revision uint64
}

type channel struct {
	store   *channels
	key     string
	initial []*peer.Object
	events  chan *peer.Object
	stopped chan struct{}
	once    sync.Once
}

func newChannels(cfg peer.Config, drop bool) *channels {
	c := &channels{drop: drop, state: map[string]*peer.Object{}, watchers: map[*channel]struct{}{}}
	for _, o := range cfg.Initial {
		c.state[o.Key] = o
	}
	return c
}

func (c *channels) Put(o *peer.Object) error { c.write(o.Key, o); return nil }
func (c *channels) Delete(key string) error  { c.write(key, nil); return nil }

func (c *channels) write(key string, o *peer.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	if o == nil {
		delete(c.state, key)
	} else {
		c.state[key] = o
	}
	for w := range c.watchers {
		if w.key != "" && w.key != key {
			continue
		}
		if c.drop {
			select {
			case w.events <- o:
			default:
			}
			continue
		}
		select {
		case w.events <- o:
		case <-w.stopped:
		}
	}
}

func (c *channels) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

func (c *channels) Watch(from peer.Start) (peer.Watcher, error) {
	if from.After > 0 {
		return nil, errors.New("channels: no history")
	}
	w := &channel{store: c, key: from.Key, events: make(chan *peer.Object, buffer), stopped: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if from.State {
		w.initial = slices.Collect(maps.Values(c.state))
	}
	c.watchers[w] = struct{}{}
	return w, nil
}

func (c *channels) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watchers {
		w.once.Do(func() { close(w.stopped) })
	}
	clear(c.watchers)
}

func (w *channel) Stop() {
	w.once.Do(func() { close(w.stopped) }) // first: the writer may wait for it, with the lock
	w.store.mu.Lock()
	delete(w.store.watchers, w)
	w.store.mu.Unlock()
}

func (w *channel) Each(visit func(seq, sent int64) bool) error {
	if !visitAll(w.initial, visit) {
		return nil
	}
	w.initial = nil
	for {
		select {
		case o := <-w.events:
			if o != nil && !visit(o.Seq, o.Sent) {
				return nil
			}
		case <-w.stopped:
			return peer.ErrEnded
		}
	}
}

// visitAll visits an initial state; false: visit wants no more.
func visitAll(objects []*peer.Object, visit func(seq, sent int64) bool) bool {
	for _, o := range objects {
		if !visit(o.Seq, o.Sent) {
			return false
		}
	}
	return true
}

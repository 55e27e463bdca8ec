// Package gochannel is watermill's pub/sub in memory as a peer: the one among the
// popular ones that replays what was published before.
package gochannel

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watchcache/watchcache/bench/peer"
)

// Peer publishes each write to every subscriber and waits for their acknowledgement:
// without that it does not promise an order.
var Peer = peer.Peer{
	Name:        "watermill",
	What:        "github.com/ThreeDotsLabs/watermill gochannel, waiting for acknowledgements, without which there is no order",
	Open:        open,
	MaxWatchers: 1000,
	MaxObjects:  10_000,
	Cannot: map[peer.Case]string{
		peer.Slow:    "a subscriber that stalls blocks the writer for good",
		peer.Resume:  "replays all that was ever published, from no position, in no order",
		peer.Initial: "replays all that was ever published, a goroutine for each message, in no order",
	},
}

const everything = "all"

type store struct {
	pubsub *gochannel.GoChannel
	mu     sync.Mutex
	keys   map[string]bool // with subscribers of their own
	count  uint64
}

func open(cfg peer.Config) (peer.Store, error) {
	return &store{
		pubsub: gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100, BlockPublishUntilSubscriberAck: true}, nil),
		keys:   map[string]bool{},
	}, nil
}

func (s *store) Put(o *peer.Object) error {
	return s.publish(o.Key, o.Encode())
}

func (s *store) Delete(key string) error { return s.publish(key, nil) }

func (s *store) publish(key string, payload []byte) error {
	s.mu.Lock()
	s.count++
	ofItsOwn := s.keys[key]
	s.mu.Unlock()
	if ofItsOwn {
		if err := s.pubsub.Publish(key, message.NewMessage("", payload)); err != nil {
			return err
		}
	}
	return s.pubsub.Publish(everything, message.NewMessage("", payload))
}

func (s *store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *store) Close() { s.pubsub.Close() }

func (s *store) Watch(from peer.Start) (peer.Watcher, error) {
	topic := everything
	if from.Key != "" {
		topic = from.Key
		s.mu.Lock()
		s.keys[topic] = true
		s.mu.Unlock()
	}
	ctx, stop := context.WithCancel(context.Background())
	messages, err := s.pubsub.Subscribe(ctx, topic)
	if err != nil {
		stop()
		return nil, err
	}
	return &watcher{messages, stop}, nil
}

type watcher struct {
	messages <-chan *message.Message
	stop     context.CancelFunc
}

func (w *watcher) Each(visit func(seq, sent int64) bool) error {
	defer w.stop()
	for m := range w.messages {
		goOn := len(m.Payload) == 0 || visit(peer.Decode(m.Payload)) // empty: a deletion
		m.Ack()
		if !goOn {
			return nil
		}
	}
	return peer.ErrEnded
}

func (w *watcher) Stop() { w.stop() }

// Package nats is an embedded NATS server as a peer: a JetStream key-value bucket in
// memory, and its watchers over a connection inside the process.
package nats

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/watchcache/watchcache/bench/peer"
)

// Peer is the embedded server. Each write waits for the server's answer.
var Peer = peer.Peer{
	Name:        "nats-kv",
	What:        "embedded github.com/nats-io/nats-server, JetStream KV in memory, in-process connection",
	Open:        open,
	Joins:       true,
	MaxWatchers: 100,
	MaxObjects:  10_000,
	Cannot: map[peer.Case]string{
		peer.Resume: "a bucket keeps the last value of a key (at most 64), not the history of changes",
		peer.Storm:  "200 new watchers a second keep the server from writes: ten seconds' worth were not done in a quarter of an hour",
	},
}

type store struct {
	dir      string
	server   *server.Server
	conn     *nats.Conn
	bucket   jetstream.KeyValue
	revision uint64
}

func open(cfg peer.Config) (_ peer.Store, err error) {
	s := &store{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "nats"); err != nil {
		return nil, err
	}
	s.server, err = server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: s.dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.server.Start()
	if !s.server.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("nats: the server does not start")
	}
	if s.conn, err = nats.Connect("", nats.InProcessServer(s.server)); err != nil {
		return nil, err
	}
	stream, err := jetstream.New(s.conn)
	if err != nil {
		return nil, err
	}
	s.bucket, err = stream.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "objects", Storage: jetstream.MemoryStorage})
	if err != nil {
		return nil, err
	}
	for _, o := range cfg.Initial {
		if err := s.Put(o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *store) Put(o *peer.Object) (err error) {
	s.revision, err = s.bucket.Put(context.Background(), o.Key, o.Encode())
	return err
}

func (s *store) Delete(key string) error { return s.bucket.Delete(context.Background(), key) }
func (s *store) Revision() uint64        { return s.revision }

func (s *store) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	os.RemoveAll(s.dir)
}

func (s *store) Watch(from peer.Start) (peer.Watcher, error) {
	key := from.Key
	if key == "" {
		key = jetstream.AllKeys
	}
	var opts []jetstream.WatchOpt
	if !from.State {
		opts = append(opts, jetstream.UpdatesOnly())
	}
	w, err := s.bucket.Watch(context.Background(), key, opts...)
	if err != nil {
		return nil, err
	}
	return &watcher{w, make(chan struct{})}, nil
}

type watcher struct {
	watcher jetstream.KeyWatcher
	stopped chan struct{}
}

func (w *watcher) Each(visit func(seq, sent int64) bool) error {
	defer w.end()
	for {
		select {
		case entry, ok := <-w.watcher.Updates():
			if !ok {
				return peer.ErrEnded
			}
			if entry == nil || entry.Operation() != jetstream.KeyValuePut {
				continue // the end of the state, or a deletion
			}
			if !visit(peer.Decode(entry.Value())) {
				return nil
			}
		case <-w.stopped:
			return peer.ErrEnded
		}
	}
}

// end unsubscribes, and takes what the client still has in its hands: it is in a send for
// ever otherwise.
func (w *watcher) end() {
	if w.watcher.Stop() != nil {
		return
	}
	for range w.watcher.Updates() { // closed when it has let go
	}
}

func (w *watcher) Stop() { close(w.stopped) }

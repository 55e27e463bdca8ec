// Package state is github.com/cilium/statedb as a peer.
package state

import (
	"github.com/cilium/statedb"
	"github.com/cilium/statedb/index"

	"github.com/watchcache/watchcache/bench/peer"
)

// Peer is statedb: a table with a primary index, its Changes and its GetWatch.
var Peer = peer.Peer{
	Name:   "statedb",
	What:   "github.com/cilium/statedb: persistent radix trees, Changes() and GetWatch()",
	Open:   open,
	Joins:  true,
	Cannot: map[peer.Case]string{peer.Resume: "Changes() begins with the state; a deletion is kept only for iterators that exist already"},
}

// object gives a peer.Object the methods that a table wants.
type object struct{ peer.Object }

func (o *object) TableHeader() []string { return []string{"Key"} }
func (o *object) TableRow() []string    { return []string{o.Key} }

var byKey = statedb.Index[*object, string]{
	Name:       "key",
	FromObject: func(o *object) index.KeySet { return index.NewKeySet(index.String(o.Key)) },
	FromKey:    index.String,
	Unique:     true,
}

type store struct {
	db    *statedb.DB
	table statedb.RWTable[*object]
}

func open(cfg peer.Config) (peer.Store, error) {
	db := statedb.New()
	table, err := statedb.NewTable(db, "objects", byKey)
	if err != nil {
		return nil, err
	}
	if err := db.Start(); err != nil {
		return nil, err
	}
	s := &store{db: db, table: table}
	txn := db.WriteTxn(table)
	for _, o := range cfg.Initial {
		if _, _, err := table.Insert(txn, &object{*o}); err != nil {
			return nil, err
		}
	}
	txn.Commit()
	return s, nil
}

func (s *store) Put(o *peer.Object) error {
	txn := s.db.WriteTxn(s.table)
	_, _, err := s.table.Insert(txn, &object{*o})
	txn.Commit()
	return err
}

func (s *store) Delete(key string) error {
	txn := s.db.WriteTxn(s.table)
	_, _, err := s.table.Delete(txn, &object{peer.Object{Key: key}})
	txn.Commit()
	return err
}

func (s *store) Revision() uint64 { return s.table.Revision(s.db.ReadTxn()) }
func (s *store) Close()           { s.db.Stop() }

func (s *store) Watch(from peer.Start) (peer.Watcher, error) {
	w := &watcher{store: s, key: from.Key, stopped: make(chan struct{})}
	if w.key != "" {
		w.readKey(from.State) // makes the channel that the next change closes
		return w, nil
	}
	txn := s.db.WriteTxn(s.table)
	changes, err := s.table.Changes(txn)
	txn.Commit()
	if err != nil {
		return nil, err
	}
	w.changes = changes
	if !from.State {
		seq, _ := changes.Next(s.db.ReadTxn())
		for range seq { // goes past the state: it cannot be left out
		}
	}
	return w, nil
}

type watcher struct {
	store   *store
	key     string
	changes statedb.ChangeIterator[*object] // of all keys
	pending *object                         // of the key
	more    <-chan struct{}                 // of the key
	stopped chan struct{}
}

func (w *watcher) readKey(deliver bool) {
	o, _, more, found := w.store.table.GetWatch(w.store.db.ReadTxn(), byKey.Query(w.key))
	w.more = more
	if found && deliver {
		w.pending = o
	}
}

func (w *watcher) Each(visit func(seq, sent int64) bool) error {
	if w.key != "" {
		return w.eachOfKey(visit)
	}
	defer w.changes.Close()
	for {
		seq, more := w.changes.Next(w.store.db.ReadTxn())
		for change := range seq {
			if !change.Deleted && !visit(change.Object.Seq, change.Object.Sent) {
				return nil
			}
		}
		select {
		case <-more:
		case <-w.stopped:
			return peer.ErrEnded
		}
	}
}

func (w *watcher) eachOfKey(visit func(seq, sent int64) bool) error {
	for {
		if o := w.pending; o != nil {
			w.pending = nil
			if !visit(o.Seq, o.Sent) {
				return nil
			}
		}
		select {
		case <-w.more:
			w.readKey(true)
		case <-w.stopped:
			return peer.ErrEnded
		}
	}
}

func (w *watcher) Stop() { close(w.stopped) }

// Package peer is what every library in the comparison is asked to do: to keep a
// collection of objects, and to tell watchers what changes.
package peer

import (
	"encoding/binary"
	"errors"
	"time"
)

// Object is what is kept: small, so that the figures are the libraries' and not the
// memory's.
type Object struct {
	Key  string
	Seq  int64 // counts the writes
	Sent int64 // when it was written: of Now
}

// Encode returns what Decode reads, for peers that take bytes.
func (o *Object) Encode() []byte {
	text := binary.LittleEndian.AppendUint64(make([]byte, 0, 16), uint64(o.Seq))
	return binary.LittleEndian.AppendUint64(text, uint64(o.Sent))
}

// Decode returns what Watcher's visit wants of an object that was encoded.
func Decode(text []byte) (seq, sent int64) {
	return int64(binary.LittleEndian.Uint64(text)), int64(binary.LittleEndian.Uint64(text[8:]))
}

var start = time.Now()

// Now is the time since the process started, in nanoseconds.
func Now() int64 { return int64(time.Since(start)) }

// Start is where a watcher begins.
type Start struct {
	State bool   // with every object, as initial events
	After uint64 // a Store.Revision; 0 and no State: now
	Key   string // only this key; "": all
}

// Store is one peer at work. Put and Delete are called by one goroutine at a time.
type Store interface {
	// Put writes one object. It may return before any watcher has it.
	Put(*Object) error
	Delete(key string) error
	// Revision is that of the last write, to start After.
	Revision() uint64
	Watch(Start) (Watcher, error)
	// Close ends everything.
	Close()
}

// Watcher is one consumer's place in a store's changes.
type Watcher interface {
	// Each calls visit for each object that was written, until visit returns false:
	// then it returns nil. It returns an error if the peer has ended the watcher, or
	// Stop has. Deletions are not told to visit.
	Each(visit func(seq, sent int64) bool) error
	// Stop makes Each return, unless visit does not. Anyone may call it.
	Stop()
}

// Config is what a store is opened for.
type Config struct {
	Initial []*Object // the state that it begins with
	History int       // how many changes it should be able to resume over; 0: as it likes
}

// Case is one of the comparisons.
type Case string

const (
	Saturated Case = "saturated" // all watchers drain as fast as they can
	Paced     Case = "paced"     // events at a fixed rate
	Elsewhere Case = "elsewhere" // an event, and many watchers of other keys
	Slow      Case = "slow"      // a healthy watcher beside those that stall
	Storm     Case = "storm"     // … at 1,000 events a second, beside a hundred that stall and reconnect
	Initial   Case = "initial"   // the state, to a new watcher
	Resume    Case = "resume"    // from a position in history
	Memory    Case = "memory"    // of an idle watcher, and of an event
	Replay    Case = "replay"    // a real history
)

// Peer is a library, or what a user would write instead.
type Peer struct {
	Name string
	What string // in a few words, for the table
	Open func(Config) (Store, error)
	// Burst is how many events may be written before the slowest watcher has them
	// all without the peer losing one or ending somebody; 0: any number.
	Burst int
	// Joins is set if a watcher may be given only the last of several changes to a
	// key, so that a case must write different ones.
	Joins bool
	// Most watchers, or objects, that it can bear on a small machine; 0: any.
	MaxWatchers, MaxObjects int
	// Cannot says why a case is left out.
	Cannot map[Case]string
}

// ErrEnded is why Each returns when the peer has ended a watcher and says no more.
var ErrEnded = errors.New("the peer ended the watcher")

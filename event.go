package watchcache

import (
	"fmt"
	"slices"
	"time"
)

// EventType says what an [Event] is.
type EventType uint8

const (
	// Added: the key came into what the watcher selects, or is part of its
	// initial state (then Initial is set).
	Added EventType = iota + 1
	// Modified: the object of a selected key was replaced and is still selected.
	Modified
	// Deleted: the key left what the watcher selects; Cause tells how.
	Deleted
	// Synced ends an initial phase: everything at Revision has been delivered.
	Synced
	// Bookmark: everything up to Revision has been delivered on this stream.
	Bookmark
	// Reset begins a new initial phase on the same stream: forget the state; it
	// follows anew.
	Reset
)

var eventTypes = names{"EventType", []string{"None", "Added", "Modified", "Deleted", "Synced", "Bookmark", "Reset"}}

// String returns the name of the constant.
func (t EventType) String() string { return eventTypes.of(uint8(t)) }

// MarshalText returns the name of the constant, which is what it is in JSON.
//
// Errors: one that names a value which is none of the constants.
func (t EventType) MarshalText() ([]byte, error) { return eventTypes.marshal(uint8(t)) }

// UnmarshalText parses the name of a constant, or "None" for 0.
//
// Errors: one that quotes what is no name of them; t is as it was then.
func (t *EventType) UnmarshalText(text []byte) error {
	value, err := eventTypes.parse(text)
	if err == nil {
		*t = EventType(value)
	}
	return err
}

// Cause says why a key was [Deleted] for a watcher.
type Cause uint8

const (
	// Removed: the key is gone from the cache.
	Removed Cause = iota + 1
	// LeftFilter: the key is still there, but its new object is not selected.
	LeftFilter
)

var causes = names{"Cause", []string{"", "Removed", "LeftFilter"}}

// String returns the name of the constant, or "" for none.
func (c Cause) String() string { return causes.of(uint8(c)) }

// MarshalText returns the name of the constant, or "" for none; this is what it is
// in JSON.
//
// Errors: one that names a value which is none of the constants.
func (c Cause) MarshalText() ([]byte, error) { return causes.marshal(uint8(c)) }

// UnmarshalText parses the name of a constant, or "" for none.
//
// Errors: one that quotes what is no name of them; c is as it was then.
func (c *Cause) UnmarshalText(text []byte) error {
	value, err := causes.parse(text)
	if err == nil {
		*c = Cause(value)
	}
	return err
}

// names are those of a type's constants, from 0 on.
type names struct {
	kind string
	all  []string
}

func (n names) of(value uint8) string {
	if int(value) < len(n.all) {
		return n.all[value]
	}
	return n.kind + "(?)"
}

func (n names) marshal(value uint8) ([]byte, error) {
	if int(value) >= len(n.all) {
		return nil, fmt.Errorf("watchcache: there is no %s %d", n.kind, value)
	}
	return []byte(n.all[value]), nil
}

func (n names) parse(text []byte) (value uint8, err error) {
	i := slices.Index(n.all, string(text))
	if i < 0 {
		return 0, fmt.Errorf("watchcache: there is no %s %.40q", n.kind, text)
	}
	return uint8(i), nil
}

// Event is one key's change inside a commit, as one watcher sees it, or one of
// the markers Synced, Bookmark and Reset, which have no key and no object.
//
// Object and Prev are shared with the cache and all its watchers: they are
// read-only. [Options].Clone is the way out.
type Event[T any] struct {
	Type EventType
	Key  string
	// Object is the state after the change. In a Deleted event it is the last
	// state if the key was removed, and the new state if it left the filter.
	Object T
	// Prev is the state before the change: in Modified and Deleted events. With
	// WatchOptions.Coalesce, of a Modified event it is what the consumer has, and of
	// a Deleted one the last state, which the consumer may never have been given.
	Prev T
	// Revision is the commit's; of an initial event, that at which its object
	// was last changed; of a marker, that up to which it speaks.
	Revision uint64
	Cause    Cause     // of a Deleted event
	Initial  bool      // out of the snapshot, in an initial phase
	More     bool      // further events of the same commit follow for this watcher; never set with Initial
	Time     time.Time // when the commit was made; of a marker, when the marker was
}

// Batch is the events of one commit that a watcher selects, or one marker, or a
// run of initial events. It is valid during the yield only: Events is reused.
type Batch[T any] struct {
	// Revision is the commit's, the marker's, or, for initial events, that of
	// the snapshot.
	Revision uint64
	Events   []Event[T]
}

// Change is one key's new state.
type Change[T any] struct {
	Key    string
	Object T    // ignored if Delete is set
	Delete bool // deleting a key that is not there makes no event
}

// Commit is everything that changes at one revision.
type Commit[T any] struct {
	// Revision must be above the cache's; 0 is the next one (not in Mirror mode).
	Revision uint64
	// Changes are applied in order; a key may appear more than once. None at
	// all equals [Cache.Progress].
	Changes []Change[T]
	// Continues marks more changes at the head's own revision, for sources that
	// cannot see where a revision ends. Each such commit is atomic by itself;
	// [Position].Part counts them.
	Continues bool
	// Time is the source's; zero is the Clock's now.
	Time time.Time
}

// Item is one key of the state.
type Item[T any] struct {
	Key    string
	Object T
	// Revision is that of the commit that gave the key this object.
	Revision uint64
}

// entry is what the state keeps for a key.
type entry[T any] struct {
	object   T
	revision uint64
	derived  *derived // nil without Indexes and Size
}

// derived is what the Options' hooks said about an object, once, when it came.
type derived struct {
	indexes [][]string // the values, by index number
	size    int64
}

func (d *derived) values(index int) []string {
	if d == nil {
		return nil
	}
	return d.indexes[index]
}

func (d *derived) all() [][]string {
	if d == nil {
		return nil
	}
	return d.indexes
}

func (d *derived) bytes() int64 {
	if d == nil {
		return 0
	}
	return d.size
}

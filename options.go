package watchcache

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/watchcache/watchcache/internal/ranges"
	"github.com/watchcache/watchcache/internal/registry"
	"github.com/watchcache/watchcache/internal/watchdog"
)

// Clock is where a cache's time comes from. clock.New() and *clock.Mock of
// github.com/benbjohnson/clock satisfy it as they are. Both methods may be
// called concurrently.
type Clock interface {
	// Now returns the time. Where it carries a monotonic reading, changes of
	// the wall clock do not matter.
	Now() time.Time
	// After returns a channel that receives once, after d.
	After(d time.Duration) <-chan time.Time
}

// RelistPolicy says what live watchers get when the state is listed anew at a
// higher revision, and the changes in between are unknown.
type RelistPolicy uint8

const (
	// RelistDiff gives them the difference, as one commit.
	RelistDiff RelistPolicy = iota
	// RelistExpire ends them as expired.
	RelistExpire
)

const (
	defaultCapacity = 16384
	defaultKeep     = 128
)

// Options are a cache's settings. The zero value works. Functions must be safe
// for concurrent use and pure: the same arguments give the same result.
//
// Publish, Equal and SameIdentity see the state before the commit, so that they
// run in the writer's turn: other writers wait for them, nobody else does. They
// may read the cache and must not write to it.
type Options[T any] struct {
	// Mirror: revisions come from a source. The cache is not ready until its
	// first Replace, and Put and Delete, which number commits themselves, are
	// refused. Without it the cache is born ready, empty, at revision
	// FirstRevision-1.
	Mirror bool
	// Epoch is the identity of the numbering of revisions. Default: random for
	// each cache; set it where revisions outlive the process. A cache that numbers
	// its commits itself must then begin above all that it has numbered before, by
	// FirstRevision: positions would be taken for others otherwise.
	Epoch string
	// FirstRevision is where a cache that numbers its commits itself starts to
	// count. Default 1.
	FirstRevision uint64
	// Capacity is the most events that history keeps. Default 16384. Memory is
	// taken only as it fills. The newest commit is kept whole even if it alone
	// exceeds Capacity or MaxBytes.
	Capacity int
	// Retention drops events older than this, also when the cache is idle. 0: by
	// Capacity and MaxBytes only.
	Retention time.Duration
	// Keep is how many of the newest events are never dropped by age. Default,
	// for 0, 128, or Capacity if that is less: 1 is the least. Needs Retention.
	Keep int
	// MaxBytes is the most bytes of history, as Size counts them. An event counts
	// its object or the one that it replaced, whichever is larger: history keeps
	// no more than that alive beyond the state itself. A deletion whose object
	// Publish has made counts both. 0: no limit.
	MaxBytes int64
	// Size returns how many bytes an object counts. It is called once for each
	// object written, outside all locks. What is below 0 counts as 0.
	Size func(key string, object T) int
	// Indexes are named functions that return the values by which an object can
	// be found and watched. Called once for each object written, outside all
	// locks.
	Indexes map[string]func(key string, object T) []string
	// Equal tells Replace whether a listed object differs from the one that the
	// cache has. Default reflect.DeepEqual.
	Equal func(a, b T) bool
	// SameIdentity tells Replace whether two differing objects are the same
	// thing changed; false: the old one was deleted and a new one created.
	// Default: always the same.
	SameIdentity func(a, b T) bool
	// Publish returns what the state, history and watchers get in place of the
	// object: a wrapper that encodes once, or a deletion's last object stamped
	// with its revision. It is called once for each change that makes an event;
	// prev is the published object before, zero if there was none.
	Publish func(revision uint64, change Change[T], prev T) T
	// Clone, if set, makes the copy that every delivery and every read hands out,
	// of Object and of Prev. It runs on the goroutine that gets the copy: a panic
	// in it goes through to who reads, and ends a watcher.
	Clone func(T) T
	// Relist is what live watchers get after a relist. Default RelistDiff.
	Relist RelistPolicy
	// Stall is the policy of watchers that have none of their own. Default
	// Evict{}.
	Stall StallPolicy
	// MaxWatchers is the most watchers at a time; beyond it Watch fails with
	// ErrTooManyWatchers. 0: no limit.
	MaxWatchers int
	// Clock is where time comes from. Default: the real one.
	Clock Clock
	// Logger gets what an operator wants to know: watchers ended by policy,
	// relists, a source's errors. Default: discard.
	Logger *slog.Logger
}

func (o Options[T]) withDefaults() (Options[T], error) {
	invalid := func(field, reason string) (Options[T], error) {
		return o, &OptionError{"Options." + field, reason}
	}
	switch {
	case o.Mirror && o.FirstRevision != 0:
		return invalid("FirstRevision", "contradicts Mirror, where the source numbers commits")
	case o.Capacity < 0:
		return invalid("Capacity", "negative")
	case o.Capacity > 1<<30:
		return invalid("Capacity", "above 2^30 events")
	case o.Retention < 0:
		return invalid("Retention", "negative")
	case o.Keep < 0:
		return invalid("Keep", "negative")
	case o.Keep > 0 && o.Retention == 0:
		return invalid("Keep", "has no meaning without Retention")
	case o.MaxBytes < 0:
		return invalid("MaxBytes", "negative")
	case o.MaxBytes > 0 && o.Size == nil:
		return invalid("MaxBytes", "needs Size")
	case o.Relist > RelistExpire:
		return invalid("Relist", fmt.Sprintf("unknown policy %d", o.Relist))
	case o.MaxWatchers < 0:
		return invalid("MaxWatchers", "negative")
	}
	for name, index := range o.Indexes {
		if name == "" || index == nil {
			return invalid("Indexes", fmt.Sprintf("%q: an index needs a name and a function", name))
		}
	}
	if o.Capacity == 0 {
		o.Capacity = defaultCapacity
	}
	if o.Keep > o.Capacity {
		return invalid("Keep", "above Capacity")
	}
	if o.Keep == 0 {
		o.Keep = min(defaultKeep, o.Capacity)
	}
	if o.FirstRevision == 0 {
		o.FirstRevision = 1
	}
	if o.Epoch == "" {
		o.Epoch = newEpoch()
	}
	if o.Equal == nil {
		o.Equal = func(a, b T) bool { return reflect.DeepEqual(a, b) }
	}
	if o.Stall == nil {
		o.Stall = Evict{}
	}
	if o.Clock == nil {
		o.Clock = watchdog.Real{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Indexes = maps.Clone(o.Indexes)
	return o, nil
}

// newEpoch returns an identity that no other cache has.
func newEpoch() string { return rand.Text()[:16] }

// IndexValue is one value of one of Options.Indexes.
type IndexValue struct{ Name, Value string }

// WatchOptions say what a watcher gets. The zero value is the whole state, then
// every change.
type WatchOptions[T any] struct {
	// Start is where to begin. Default FromState().
	Start Start
	// AtLeast: wait first until the cache is at least this fresh.
	AtLeast uint64
	// AtLeastWait is the longest to wait for AtLeast, and for the cache to be
	// ready; then Watch fails with ErrTimeout. 0: as long as its context.
	AtLeastWait time.Duration

	// Key, Prefix, From and To select keys: exactly Key, those that begin with
	// Prefix, or those in [From, To), where an empty border is open. At most one
	// of the three kinds.
	Key, Prefix, From, To string
	// Index selects objects that have a value in an index; combines with the
	// above.
	Index IndexValue
	// Filter selects objects by anything else. It is evaluated on the old and
	// the new object, on the consumer's goroutine.
	Filter func(key string, object T) bool

	// Bookmarks: deliver a bookmark at least this often, from when there is something
	// to tell: none is at or below the position that the watcher started after, or
	// was synced at; once the cache is beyond that they come also where nothing has
	// changed since the last. So they keep a position up, and do not keep a
	// connection alive that has yet to see a change: that takes a timer of one's
	// own. 0: none, but those that are requested.
	Bookmarks time.Duration
	// Deadline ends the watcher with ErrDeadline: when everything committed
	// before it was taken. Zero: none.
	Deadline time.Time
	// DeadlineLead: a bookmark so long before the Deadline, as far as Bookmarks
	// would be; the stream goes on. In an initial phase Synced takes its place.
	DeadlineLead time.Duration

	// Stall overrides Options.Stall.
	Stall StallPolicy
	// Coalesce: of each key only the newest pending state; see [Watcher].
	Coalesce bool
	// Name is for Watchers, for policies and for logs.
	Name string
}

type startKind uint8

const (
	startState startKind = iota
	startNow
	startPosition
	startRevision
)

// Start is where a watcher begins. The zero Start is FromState().
type Start struct {
	kind        startKind
	position    Position
	allowFuture bool
}

// FromState starts with the state as initial events, then Synced, then changes.
func FromState() Start { return Start{} }

// FromNow starts with the first change after Watch.
func FromNow() Start { return Start{kind: startNow} }

// After resumes: it starts with the first change after p.
func After(p Position) Start { return Start{kind: startPosition, position: p} }

// AfterRevision is After for a revision of the current epoch, whatever that is,
// with Part 0. Prefer After: it notices when revisions are numbered anew, and
// knows about commits that continue a revision.
func AfterRevision(revision uint64) Start {
	return Start{kind: startRevision, position: Position{Revision: revision}}
}

// AllowFuture lets a client that may be ahead of this cache start at once: it
// gets nothing at or below its position. While the cache has yet to pass it, the
// watcher lacks nothing: it has no lag, and no stall policy is asked about it. A
// relist that leaves its position in a hole ends it with ErrExpired.
func (s Start) AllowFuture() Start {
	s.allowFuture = true
	return s
}

// Position returns the position that the watcher starts after; false for FromState
// and FromNow. Of AfterRevision its Epoch is empty. For wrappers that send a Start
// to where the cache is; two of them are the same if they are ==.
func (s Start) Position() (p Position, ok bool) {
	return s.position, s.kind == startPosition || s.kind == startRevision
}

func (o *WatchOptions[T]) validate(indexes []string) error {
	invalid := func(field, reason string) error {
		return &OptionError{"WatchOptions." + field, reason}
	}
	byRange := o.From != "" || o.To != ""
	switch {
	case o.Key != "" && o.Prefix != "":
		return invalid("Prefix", "contradicts Key")
	case o.Key != "" && byRange:
		return invalid("From", "From and To contradict Key")
	case o.Prefix != "" && byRange:
		return invalid("From", "From and To contradict Prefix")
	case o.To != "" && o.From >= o.To:
		return invalid("To", "not above From")
	case o.Index.Name == "" && o.Index.Value != "":
		return invalid("Index", "a value without a name")
	case o.Index.Name != "" && !slices.Contains(indexes, o.Index.Name):
		return invalid("Index", fmt.Sprintf("unknown index %q", o.Index.Name))
	case o.AtLeastWait < 0:
		return invalid("AtLeastWait", "negative")
	case o.Bookmarks < 0:
		return invalid("Bookmarks", "negative")
	case o.DeadlineLead < 0:
		return invalid("DeadlineLead", "negative")
	case o.DeadlineLead > 0 && o.Deadline.IsZero():
		return invalid("DeadlineLead", "has no meaning without Deadline")
	case o.Start.allowFuture && o.Start.kind != startPosition && o.Start.kind != startRevision:
		return invalid("Start", "AllowFuture has no meaning without a position")
	}
	return nil
}

func (o *WatchOptions[T]) selection(indexes []string) registry.Selection {
	s := registry.Selection{Key: o.Key, Range: ranges.Range{From: o.From, To: o.To}}
	if o.Prefix != "" {
		s.Range = ranges.OfPrefix(o.Prefix)
	}
	if o.Index.Name != "" {
		s.Index, s.Value = slices.Index(indexes, o.Index.Name)+1, o.Index.Value
	}
	return s
}

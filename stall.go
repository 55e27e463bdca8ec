package watchcache

import (
	"math"
	"runtime/debug"
	"time"
)

// Phase is where a watcher is in its life.
type Phase uint8

const (
	// PhaseInitial: the initial state is being delivered, up to Synced.
	PhaseInitial Phase = iota + 1
	// PhaseStreaming: changes are being delivered.
	PhaseStreaming
	// PhaseEnded: Err tells why.
	PhaseEnded
)

var phases = names{"Phase", []string{"none", "initial", "streaming", "ended"}}

// String returns "initial", "streaming" or "ended"; "none" for 0.
func (p Phase) String() string { return phases.of(uint8(p)) }

// MarshalText returns what String does, which is what it is in JSON.
//
// Errors: one that names a value which is none of the constants.
func (p Phase) MarshalText() ([]byte, error) { return phases.marshal(uint8(p)) }

// UnmarshalText parses what MarshalText returns.
//
// Errors: one that quotes what is no name of a constant; p is as it was then.
func (p *Phase) UnmarshalText(text []byte) error {
	value, err := phases.parse(text)
	if err == nil {
		*p = Phase(value)
	}
	return err
}

// Verdict is a [StallPolicy]'s answer.
type Verdict uint8

const (
	// VerdictWait leaves the watcher alone until a limit is reached again. At an
	// overrun there is nothing to wait for: there it means VerdictEvict.
	VerdictWait Verdict = iota
	// VerdictEvict ends the watcher: ErrStalled in the initial phase, ErrLagged
	// while streaming.
	VerdictEvict
	// VerdictResync lets the watcher start again on the same stream: Reset, a
	// fresh snapshot, Synced, changes. Until its consumer comes back for that, it
	// costs nothing but its own few hundred bytes.
	VerdictResync
)

var verdicts = names{"Verdict", []string{"wait", "evict", "resync"}}

// String returns "wait", "evict" or "resync".
func (v Verdict) String() string { return verdicts.of(uint8(v)) }

// MarshalText returns what String does, which is what it is in JSON.
//
// Errors: one that names a value which is none of the constants.
func (v Verdict) MarshalText() ([]byte, error) { return verdicts.marshal(uint8(v)) }

// UnmarshalText parses what MarshalText returns.
//
// Errors: one that quotes what is no name of a constant; v is as it was then.
func (v *Verdict) UnmarshalText(text []byte) error {
	value, err := verdicts.parse(text)
	if err == nil {
		*v = Verdict(value)
	}
	return err
}

// StallPolicy says when the cache asks about a watcher that does not keep up,
// and what then happens. It has no type parameter: one policy serves every
// cache, and any number of watchers at once.
//
// Both methods are called with no lock of the cache held, so that they may call
// the cache. Limits is called once, by Watch, or by New
// for Options.Stall. Judge is called on the goroutine
// that found the stall: the writer whose commit overran or out-ran the watcher,
// right after it has let go of its locks, the cache's watchdog, or, where history is
// shorter than the initial phase was, the consumer. It must not
// block: it would hold up that writer, or other judgements. A panic in Judge ends
// the watcher that it was asked about, with a [PanicError].
//
// A verdict about idleness is dropped if the watcher has taken something
// meanwhile. One about lag is carried out: a consumer that caught up while Judge
// thought about it is ended all the same.
type StallPolicy interface {
	Limits() StallLimits
	Judge(Stall) Verdict
}

// NoLimit, as a StallLimits' InitialIdle, turns off the default of [Evict] and
// [Resync].
const NoLimit = time.Duration(math.MaxInt64)

// DefaultInitialIdle is what [Evict] and [Resync] use for an InitialIdle of 0.
const DefaultInitialIdle = 30 * time.Second

// StallLimits is when a policy wants to be asked.
type StallLimits struct {
	// InitialIdle: in the initial phase, nothing taken for this long. The time
	// restarts at every event taken, and counts from Watch on, also for a watcher
	// that nobody ever ranges over. 0: never, except in Evict and Resync, where it
	// is [DefaultInitialIdle].
	//
	// A consumer that takes more than an event a microsecond and then stops may
	// be found up to an eighth of the limit late; never early.
	InitialIdle time.Duration
	// StreamIdle: while streaming, something to take and nothing taken for this
	// long. 0: never.
	StreamIdle time.Duration
	// Lag: while streaming, this many events of its selection behind; asked when a commit
	// brings it there, and again each time that it has fallen as many further behind.
	// Who is behind by more when it begins to stream is asked with the next commit.
	// 0: only when history is about to drop what the watcher needs, which is always
	// asked.
	Lag int
}

// Stall describes a watcher that does not keep up.
type Stall struct {
	Phase     Phase
	Idle      time.Duration // how long nothing has been taken
	Lag       int           // events of its selection that it has before it
	Overrun   bool          // history is dropping what it needs: it can only end or resync
	Delivered uint64        // events taken so far
	Name      string        // WatchOptions.Name
	Position  Position      // zero in the initial phase
}

// Evict is the policy that ends every watcher that reaches a limit. Its zero
// value ends those that take nothing for 30 s in the initial phase, and those
// that history overruns while streaming. It is the default.
type Evict struct{ StallLimits }

// Limits returns the limits, with the default InitialIdle filled in.
func (p Evict) Limits() StallLimits { return p.withDefault() }

// Judge returns VerdictEvict.
func (p Evict) Judge(Stall) Verdict { return VerdictEvict }

// Resync is the policy that lets every watcher that reaches a limit start again
// with a fresh snapshot, on the same stream. Its zero value has the limits of
// Evict's.
type Resync struct{ StallLimits }

// Limits returns the limits, with the default InitialIdle filled in.
func (p Resync) Limits() StallLimits { return p.withDefault() }

// Judge returns VerdictResync.
func (p Resync) Judge(Stall) Verdict { return VerdictResync }

func (l StallLimits) withDefault() StallLimits {
	if l.InitialIdle == 0 {
		l.InitialIdle = DefaultInitialIdle
	}
	return l
}

func (l StallLimits) validate(field string) error {
	switch {
	case l.InitialIdle < 0:
		return &OptionError{field, "Limits: negative InitialIdle"}
	case l.StreamIdle < 0:
		return &OptionError{field, "Limits: negative StreamIdle"}
	case l.Lag < 0:
		return &OptionError{field, "Limits: negative Lag"}
	}
	return nil
}

// StallFunc is the policy that asks judge at the given limits.
func StallFunc(limits StallLimits, judge func(Stall) Verdict) StallPolicy {
	return stallFunc{limits, judge}
}

type stallFunc struct {
	limits StallLimits
	judge  func(Stall) Verdict
}

func (p stallFunc) Limits() StallLimits       { return p.limits }
func (p stallFunc) Judge(stall Stall) Verdict { return p.judge(stall) }

// exited is the error for a callback that called runtime.Goexit, as the FailNow of
// a test does: the goroutine is lost, and nobody else may wait for it.
func exited(callback string) *PanicError {
	return &PanicError{Callback: callback, Value: "runtime.Goexit"}
}

// guard runs a function of the user's and returns its panic as an error. It does
// not return from a runtime.Goexit, which nothing can stop: what must be done even
// then, the caller defers.
func guard(callback string, f func()) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Callback: callback, Value: value, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

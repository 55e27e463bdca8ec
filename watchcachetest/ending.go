package watchcachetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/watchcache/watchcache"
)

// end is the error with which a stream ended: a reason that can be true.
func (r *replay[T]) end(rec record[T], wrong wrongFunc) *Violation {
	err := rec.err
	switch {
	case err == nil:
		return wrong(5, "it ended without a reason", "an error")
	case r.ended != nil && r.ended.Error() != err.Error():
		return wrong(5, "it ended with two reasons: the first one wins", fmt.Sprintf("ended: %v", r.ended))
	case r.ended != nil:
		return nil
	}
	if v := r.stalled(err, wrong); v != nil {
		return v
	}
	if v := r.expired(err, wrong); v != nil {
		return v
	}
	r.ended = err
	return nil
}

// stalled checks what a stall policy's error says of where the watcher was.
func (r *replay[T]) stalled(err error, wrong wrongFunc) *Violation {
	if !errors.Is(err, watchcache.ErrStalled) && !errors.Is(err, watchcache.ErrLagged) {
		return nil
	}
	var stalled *watchcache.StalledError
	switch {
	case !errors.As(err, &stalled):
		return wrong(5, "the error does not say how it stalled", "a StalledError")
	case stalled.Phase != watchcache.PhaseStreaming:
		return nil
	case r.initial:
		return wrong(5, "it ended as lagging in its initial phase", "ErrStalled")
	case stalled.Position.Epoch != r.era.base.Epoch:
		return wrong(5, "the error's position is of another epoch", "one of epoch "+r.era.base.Epoch)
	}
	if want, ok := r.untaken(stalled.Position); ok && before(r.low, stalled.Position) {
		return wrong(5, "the error's position is beyond what was taken: to resume there skips", "not beyond "+want)
	}
	return nil
}

// expired checks that there was something for a live watcher to expire of.
func (r *replay[T]) expired(err error, wrong wrongFunc) *Violation {
	if !errors.Is(err, watchcache.ErrExpired) {
		return nil
	}
	var expired *watchcache.ExpiredError
	if !errors.As(err, &expired) {
		return wrong(6, "the error does not say what expired", "an ExpiredError")
	}
	// Where no position is told, events may have been taken that nobody was given, as
	// those on their way into a channel.
	if at := expired.Requested; r.tells && !r.initial && at.Epoch == r.era.base.Epoch && before(r.low, at) {
		if want, ok := r.untaken(at); ok {
			return wrong(6, "the error's position is beyond what was taken: to resume there skips", "not beyond "+want)
		}
	}
	eras := r.timeline.eras
	if len(eras) <= r.eras && (r.era == nil || r.era == r.timeline.last()) && !(r.era != nil && r.era.inHole(r.low)) {
		v := wrong(6, "it expired, although the state was not listed anew", "to go on")
		v.heals = true
		return v
	}
	foreign := false
	for i, e := range eras {
		if i > 0 && e.base.Epoch != eras[i-1].base.Epoch && (r.era == nil || r.era == eras[i-1]) {
			foreign = true
		}
	}
	// A client that is ahead may have begun in the era before the one that its
	// position is of now.
	settled := r.era != nil && r.era != r.timeline.last() && !before(r.era.head, r.low) && !r.era.inHole(r.low) &&
		slices.Index(eras, r.era) < r.eras
	switch is := errors.Is(err, watchcache.ErrEpoch); {
	case is && !foreign:
		return wrong(6, "it blames another epoch, although the epoch stayed", "ErrExpired without ErrEpoch")
	case !is && foreign && settled:
		return wrong(6, "it does not say that the epoch is another one now", "ErrExpired and ErrEpoch")
	}
	return nil
}

// refused checks a refusal to start.
func (r *replay[T]) refused(rec record[T], wrong wrongFunc) *Violation {
	var expired *watchcache.ExpiredError
	var future *watchcache.FutureError
	switch {
	case rec.err == nil:
		return wrong(6, "it was refused without a reason", "an error")
	case errors.As(rec.err, &expired):
		return r.refusedAsExpired(rec, expired, wrong)
	case errors.As(rec.err, &future):
		switch {
		case future.Requested != rec.at:
			return wrong(6, "the error does not carry what was asked", fmt.Sprintf("Requested %v", rec.at))
		case future.Head.Epoch != rec.at.Epoch || !before(future.Head, rec.at):
			return wrong(6, "the position is not in the future", fmt.Sprintf("a position beyond %v", future.Head))
		}
	case errors.Is(rec.err, watchcache.ErrExpired):
		return wrong(6, "the error does not say what expired", "an ExpiredError")
	case errors.Is(rec.err, watchcache.ErrFuture):
		return wrong(6, "the error does not say how far the cache is", "a FutureError")
	}
	return nil
}

func (r *replay[T]) refusedAsExpired(rec record[T], expired *watchcache.ExpiredError, wrong wrongFunc) *Violation {
	if expired.Requested != rec.at {
		return wrong(6, "the error does not carry what was asked", fmt.Sprintf("Requested %v", rec.at))
	}
	if expired.Oldest.Epoch != rec.at.Epoch || before(rec.at, expired.Oldest) {
		return nil
	}
	for _, e := range r.timeline.eras {
		if e.base.Epoch == rec.at.Epoch && e.inHole(rec.at) {
			return nil
		}
	}
	v := wrong(6, "the position has not expired", fmt.Sprintf("to start: the oldest position is %v, and no relist left a hole there", expired.Oldest))
	v.heals = true
	return v
}

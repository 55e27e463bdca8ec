package watchcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/watchcache/watchcache/internal/backoff"
)

const (
	backoffFirst     = 100 * time.Millisecond
	backoffMost      = 30 * time.Second
	progressInterval = 100 * time.Millisecond
)

// Run keeps a Mirror like its source until ctx ends: it lists, replaces, watches
// and applies; resumes after an interruption; and lists anew when the source
// cannot resume, or has sent what cannot be applied, such as a revision that goes
// back. Meanwhile the cache serves its last good state; Status and Stats tell the
// last error and the time since the last progress.
//
// Between failures it waits for a random time below a bound that begins at 100 ms
// and doubles up to 30 s, with every failure, until a change or progress comes
// through again; a listing, even one that brings changes, is neither. So a source that
// can only list, and ends each Watch with ErrExpired when there is something new,
// gives progress first, or says when to list again with [RetryAfter]. It uses the
// caller's goroutine, and one more for a [ProgressRequester] while somebody waits.
//
// Errors: the context's cause; ErrClosed; an error that the source called
// [Terminal]; ErrInUse if the cache has its Run; ErrInvalidOption ([OptionError])
// without Mirror or source. ErrSource, ErrRevisionOrder and the like are the
// source's faults, which it tries to outlive: Status has the last.
func (c *Cache[T]) Run(ctx context.Context, source Source[T]) error {
	if !c.opts.Mirror {
		return &OptionError{"Options.Mirror", "Run needs it: the source numbers commits"}
	}
	if source == nil {
		return &OptionError{"Run's source", "is nil"}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !c.source.begin(ctx, cancel, source) {
		return fmt.Errorf("%w: Run: the cache has its source", ErrInUse)
	}
	defer c.source.end()
	if c.refusesWrites() { // closed before it could cancel this Run
		return ErrClosed
	}
	defer c.setStatus(func(s *Status) { s.Connected = false })
	c.moved.Fire() // who waits for a revision can ask this source for progress
	r := run[T]{c: c, source: source, backoff: backoff.Backoff{First: backoffFirst, Most: backoffMost}}
	for {
		err := r.attempt(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var terminal *terminalError
		var retry *retryError
		switch {
		case c.refusesWrites(): // the source's own ErrClosed would be another cache's
			return ErrClosed
		case errors.As(err, &terminal):
			c.setStatus(func(s *Status) { s.Connected, s.LastError = false, err })
			if err == error(terminal) {
				err = terminal.err
			}
			return err
		}
		wait := r.backoff.Next()
		if errors.As(err, &retry) {
			wait = max(0, retry.after)
		}
		c.setStatus(func(s *Status) { s.Connected, s.LastError = false, err })
		c.log(slog.LevelWarn, "watchcache: source failed", "error", err, "failures", r.backoff.Failures(), "wait", wait)
		select {
		case <-c.opts.Clock.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Cache[T]) refusesWrites() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.draining
}

// run is one Run.
type run[T any] struct {
	c       *Cache[T]
	source  Source[T]
	backoff backoff.Backoff
	listed  bool // the state can be resumed from where the cache is
}

// attempt gets as far as it can, and returns why not further; never nil.
func (r *run[T]) attempt(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // whatever this attempt left running ends before the next
	if panicked := guard("Source", func() { err = r.try(ctx) }); panicked != nil {
		err = panicked
	}
	var retry *retryError
	transient := !errors.Is(err, ErrExpired) && !errors.Is(err, ErrRevisionOrder) && !errors.Is(err, ErrSource) &&
		!errors.Is(err, ErrInvalidKey) && !errors.Is(err, ErrCallbackPanic)
	if !transient && !errors.As(err, &retry) || errors.Is(err, ErrExpired) {
		r.listed = false // trying the same once more would end the same
	}
	return err
}

func (r *run[T]) try(ctx context.Context) error {
	atLeast := r.c.Position().Revision
	if streamer, ok := r.source.(Streamer[T]); ok && !r.listed {
		return r.follow(streamer.Stream(ctx, atLeast), true)
	}
	if !r.listed {
		at, items, err := r.source.List(ctx, atLeast)
		if err != nil {
			return err
		}
		if err := r.c.Replace(at, items); err != nil {
			return err
		}
		r.hasListed()
	} else {
		r.c.setStatus(func(s *Status) { s.Connected = true })
	}
	return r.follow(r.source.Watch(ctx, r.c.sourcePosition()), false)
}

// follow applies what a stream tells. listing: it begins with the state.
func (r *run[T]) follow(stream iter.Seq2[SourceEvent[T], error], listing bool) error {
	var items []Item[T]
	for ev, err := range stream {
		if err != nil {
			return err
		}
		switch {
		case ev.Kind == SourceItem && listing:
			items = append(items, ev.Item)
			continue
		case ev.Kind == SourceSynced && listing:
			err = r.c.Replace(ev.At, func(yield func(Item[T], error) bool) {
				for _, item := range items {
					if !yield(item, nil) {
						return
					}
				}
			})
			if err != nil {
				return err
			}
			items, listing = nil, false
			r.hasListed()
			continue
		case listing || ev.Kind != SourceCommit && ev.Kind != SourceProgress:
			return fmt.Errorf("%w: event of kind %d out of place", ErrSource, ev.Kind)
		case ev.Kind == SourceProgress:
			err = r.c.Progress(ev.At.Revision)
		default:
			_, err = r.c.Apply(ev.Commit)
		}
		if err != nil {
			return err
		}
		if failures := r.backoff.Failures(); failures > 0 { // real progress, and nothing less
			r.backoff.Reset()
			r.c.log(slog.LevelInfo, "watchcache: source recovered", "failures", failures, "at", r.c.Position())
			r.c.setStatus(func(s *Status) { s.LastError = nil })
		}
	}
	return errStreamEnded
}

// hasListed notes that the state is the source's. That ends the error which Status
// tells, but not the growth of the backoff: a source that lists and then always
// fails is not to be listed at full speed.
func (r *run[T]) hasListed() {
	r.listed = true
	r.c.setStatus(func(s *Status) { s.Connected, s.LastError = true, nil })
}

// sourcePosition is the head in the source's own words.
func (c *Cache[T]) sourcePosition() Position {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Position{Epoch: c.sourceEpoch, Revision: c.head.Revision, Part: c.head.Part}
}

// sourceState is the source that a Run follows, for those who wait.
type sourceState struct {
	mu        sync.Mutex // a leaf
	ctx       context.Context
	cancel    context.CancelCauseFunc
	requester ProgressRequester // nil: it is none
	asking    bool
	asked     time.Duration
	running   bool
}

func (s *sourceState) begin(ctx context.Context, cancel context.CancelCauseFunc, source any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return false
	}
	s.running, s.ctx, s.cancel = true, ctx, cancel
	s.requester, _ = source.(ProgressRequester)
	return true
}

func (s *sourceState) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.requester, s.ctx, s.cancel = false, nil, nil, nil
}

// close ends the Run that there is with ErrClosed.
func (s *sourceState) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel(ErrClosed)
	}
}

// requestProgress asks the source for progress, if it can be asked, is not being
// asked, and was not just asked. It returns a channel for when to try again.
func (c *Cache[T]) requestProgress() <-chan time.Time {
	s, now := &c.source, c.watchdog.Now()
	s.mu.Lock()
	requester := s.requester
	if requester != nil && !s.asking && (s.asked == 0 || now-s.asked >= progressInterval) {
		s.asking, s.asked = true, max(now, 1)
		go c.askProgress(s.ctx, requester)
	}
	s.mu.Unlock()
	if requester == nil {
		return nil
	}
	return c.opts.Clock.After(progressInterval)
}

func (c *Cache[T]) askProgress(ctx context.Context, requester ProgressRequester) {
	defer func() {
		c.source.mu.Lock()
		c.source.asking = false
		c.source.mu.Unlock()
	}()
	var err error
	if panicked := guard("ProgressRequester", func() { err = requester.RequestProgress(ctx) }); panicked != nil {
		err = panicked
	}
	if err != nil && ctx.Err() == nil {
		c.log(slog.LevelWarn, "watchcache: progress request failed", "error", err)
	}
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/watchcache/watchcache"
)

// history is what is replayed, and the truth about it.
type history interface {
	name() string
	// last is the newest revision; the oldest is 1.
	last() uint64
	// commits returns those after a revision, in order.
	commits(ctx context.Context, after uint64) iter.Seq2[watchcache.Commit[string], error]
	// truth returns the state at a revision, got in another way than by commits.
	// It is errDifferent if the history contradicts itself.
	truth(ctx context.Context, revision uint64) (map[string]string, error)
	// truthIs says where the truth comes from.
	truthIs() string
	// checkpoint reports whether a revision's state is to be checked as it passes.
	checkpoint(revision uint64) bool
}

// errDifferent is a state that is not the truth.
var errDifferent = errors.New("not the truth")

// truths is a history that is asked for the truth at a revision only once.
type truths struct {
	history
	states map[uint64]map[string]string
}

func newTruths(h history) *truths { return &truths{h, map[uint64]map[string]string{}} }

// at returns the state at a revision, which is read-only.
func (t *truths) at(ctx context.Context, revision uint64) (map[string]string, error) {
	if state, ok := t.states[revision]; ok {
		return state, nil
	}
	state, err := t.truth(ctx, revision)
	if err == nil {
		t.states[revision] = state
	}
	return state, err
}

// digest is a state in 64 digits: the SHA-256 of its lines "path<TAB>hash<LF>",
// sorted by the paths' bytes.
func digest(state map[string]string) string {
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(state)) {
		io.WriteString(sum, path+"\t"+state[path]+"\n")
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// largest returns the top directory, with its slash, that has the most of paths;
// "" if there is none.
func largest(paths iter.Seq[string]) string {
	count := map[string]int{}
	best := ""
	for path := range paths {
		if top, _, ok := strings.Cut(path, "/"); ok {
			count[top+"/"]++
		}
	}
	for _, top := range slices.Sorted(maps.Keys(count)) {
		if count[top] > count[best] {
			best = top
		}
	}
	return best
}

// replay is a history as a source: nothing, and then commit after commit.
type replay struct {
	history history
	pace    time.Duration // for the whole
}

// List returns the empty state before the first commit.
func (r *replay) List(context.Context, uint64) (watchcache.Position, iter.Seq2[watchcache.Item[string], error], error) {
	return watchcache.Position{}, func(func(watchcache.Item[string], error) bool) {}, nil
}

// Watch sends the commits after a position, spread over the pace, and then waits
// for ctx to end.
func (r *replay) Watch(ctx context.Context, after watchcache.Position) iter.Seq2[watchcache.SourceEvent[string], error] {
	return func(yield func(watchcache.SourceEvent[string], error) bool) {
		begin := time.Now()
		for commit, err := range r.history.commits(ctx, after.Revision) {
			if err != nil {
				yield(watchcache.SourceEvent[string]{}, watchcache.Terminal(err))
				return
			}
			share := float64(commit.Revision) / float64(r.history.last())
			due := begin.Add(time.Duration(share * float64(r.pace)))
			if !pause(ctx, time.Until(due)) || !yield(watchcache.CommitEvent(commit), nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// pause waits, and reports whether ctx lasted so long.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	truth(ctx context.Context, revision uint64) (map[string]string, error)
	// checkpoint reports whether a revision's state is to be checked as it passes.
	checkpoint(revision uint64) bool
	largestDirectory() string
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

// largest returns the top directory, with its slash, that has the most of paths.
func largest(paths iter.Seq[string]) string {
	count := map[string]int{}
	best := ""
	for path := range paths {
		if top, _, ok := strings.Cut(path, "/"); ok {
			top += "/"
			if count[top]++; count[top] > count[best] || count[top] == count[best] && top < best {
				best = top
			}
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
			due := begin.Add(r.pace * time.Duration(commit.Revision) / time.Duration(r.history.last()))
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

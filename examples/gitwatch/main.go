// Command gitwatch replays a real history through a cache, while watchers of every
// kind follow it, and checks what each of them rebuilt against the truth.
//
//	gitwatch [-repo DIR | -trace FILE] [flags]
//
// A repository's first-parent history is read with git: one revision a commit, the
// paths as keys, the blobs' hashes as objects; the truth is git ls-tree. A trace is
// a file of lines, plain or gzip: "N<TAB>UNIX-TIME" opens revision N,
// "P<TAB>path<TAB>hash" puts and "D<TAB>path" deletes a key in it. The truth for it
// is a replay by other code, which must agree with FILE's checkpoints: the file
// with .checkpoints in place of the last endings, lines of
// "revision<TAB>files<TAB>sha256".
//
// The exit status is 0 if every watcher's state is the truth at its position, 1 on
// any difference, and 2 if there was nothing to compare.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/watchcache/watchcache"
)

// settings are the command's flags.
type settings struct {
	repo, trace, prefix string
	stall, duration     time.Duration
	capacity            int
}

func main() {
	var s settings
	flag.StringVar(&s.repo, "repo", ".", "replay the repository that `DIR` stands in")
	flag.StringVar(&s.trace, "trace", "", "replay the trace `FILE` in place of a repository")
	flag.StringVar(&s.prefix, "prefix", "", "what the prefix watcher selects; default: the largest directory")
	flag.DurationVar(&s.stall, "stall", 2*time.Second, "end a watcher that takes nothing for this long")
	flag.DurationVar(&s.duration, "duration", 4*time.Second, "spread the replay over this long; 0: full speed")
	flag.IntVar(&s.capacity, "capacity", 16384, "the most events that history keeps")
	flag.Parse()
	if flag.NArg() > 0 || s.stall <= 0 || s.duration < 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	same, err := run(ctx, s, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "gitwatch:", err)
		os.Exit(2)
	case !same:
		os.Exit(1)
	}
}

// run replays, and reports whether everything was the truth.
func run(ctx context.Context, s settings, out io.Writer) (same bool, err error) {
	var h history
	if s.trace != "" {
		h, err = openTrace(s.trace)
	} else {
		h, err = openRepository(ctx, s.repo)
	}
	if err != nil {
		return false, err
	}
	if s.prefix == "" {
		s.prefix = h.largestDirectory()
	}
	fmt.Fprintf(out, "%s: %d revisions; history keeps %d events; a watcher that takes nothing for %v is judged\n", h.name(), h.last(), s.capacity, s.stall)

	cache, err := watchcache.New(watchcache.Options[string]{Mirror: true, Epoch: "gitwatch", Capacity: s.capacity})
	if err != nil {
		return false, err
	}
	defer cache.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// The cache follows the history by itself, until it is shut down. Should Run end
	// sooner, then that is why there is nothing to wait for.
	replayed := make(chan struct{})
	go func() {
		defer close(replayed)
		err := cache.Run(ctx, &replay{history: h, pace: s.duration})
		if !errors.Is(err, watchcache.ErrClosed) {
			cancel(err)
		}
	}()
	if err := cache.WaitReady(ctx); err != nil {
		return false, context.Cause(ctx)
	}
	followers := startFollowers(ctx, cache, h, s)
	err = showProgress(ctx, out, cache, h.last())
	if err != nil {
		return false, err
	}

	// Everything is in. Those who still read get the rest; those who do not are
	// ended by their policy, and if they have none that strikes, with the cache.
	drain, done := context.WithTimeout(ctx, 30*time.Second+2*s.stall)
	defer done()
	final := cache.Snapshot()
	if err := cache.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return false, err
	}
	<-replayed
	followers.wait()
	return report(ctx, out, h, final, cache, followers)
}

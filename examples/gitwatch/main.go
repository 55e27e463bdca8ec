// Command gitwatch replays a real history through a cache, while watchers of every
// kind follow it, and checks what each of them rebuilt against the truth.
//
//	gitwatch [-repo DIR | -trace FILE] [-prefix P] [-stall D] [-duration D | -rate N] [-capacity N]
//
// A repository's first-parent history is read with git: one revision a commit, the
// paths as keys, the blobs' hashes as objects; the truth is git ls-tree. A trace is
// a file of lines, plain or gzip: "N<TAB>UNIX-TIME" opens revision N,
// "P<TAB>path<TAB>hash" puts and "D<TAB>path" deletes a key in it. The truth for it
// is a replay by other code, which must agree with FILE's checkpoints: the file
// with .checkpoints in place of the last endings, lines of
// "revision<TAB>files<TAB>sha256".
//
// With a small -capacity, those who fall behind are overrun by history, and
// positions expire; with a small -stall, policies strike sooner.
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
	"maps"
	"os"
	"os/signal"
	"time"

	"github.com/watchcache/watchcache"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// The command's exit statuses.
const (
	exitTrue      = 0
	exitDifferent = 1
	exitFailed    = 2
)

// command does what its arguments say, and returns the exit status.
func command(ctx context.Context, args []string, out, failures io.Writer) int {
	s, err := parseSettings(args, failures)
	if errors.Is(err, flag.ErrHelp) {
		return exitTrue
	}
	same := false
	if err == nil {
		same, err = run(ctx, s, out)
	}
	switch {
	case err != nil:
		fmt.Fprintln(failures, "gitwatch:", err)
		return exitFailed
	case !same:
		return exitDifferent
	}
	return exitTrue
}

// settings are the command's flags.
type settings struct {
	repo, trace, prefix string
	stall, duration     time.Duration
	rate                float64
	capacity            int
}

func parseSettings(args []string, usage io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("gitwatch", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&s.repo, "repo", ".", "replay the repository that `DIR` stands in")
	flags.StringVar(&s.trace, "trace", "", "replay the trace `FILE` in place of a repository")
	flags.StringVar(&s.prefix, "prefix", "", "what the prefix watcher selects; default: the largest directory")
	flags.DurationVar(&s.stall, "stall", 2*time.Second, "judge a watcher that takes nothing for this long")
	flags.DurationVar(&s.duration, "duration", 4*time.Second, "spread the replay over this long; 0: full speed")
	flags.Float64Var(&s.rate, "rate", 0, "replay this many revisions a second, in place of -duration")
	flags.IntVar(&s.capacity, "capacity", 16384, "the most events that history keeps")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case given["repo"] && given["trace"]:
		err = errors.New("-repo and -trace: one of them")
	case given["duration"] && given["rate"]:
		err = errors.New("-duration and -rate: one of them")
	case s.stall <= 0:
		err = errors.New("-stall must be above 0")
	case s.duration < 0:
		err = errors.New("-duration must not be negative")
	case given["rate"] && !(s.rate > 0):
		err = errors.New("-rate must be above 0")
	case s.capacity <= 0:
		err = errors.New("-capacity must be above 0")
	}
	return s, err
}

// run opens a history and replays it.
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
	return replayAndCheck(ctx, s, newTruths(h), out)
}

// replayAndCheck replays, and reports whether everything was the truth.
func replayAndCheck(ctx context.Context, s settings, h *truths, out io.Writer) (same bool, err error) {
	if s.rate > 0 {
		s.duration = time.Duration(float64(h.last()) / s.rate * float64(time.Second))
	}
	if s.prefix == "" {
		final, err := h.at(ctx, h.last())
		if errors.Is(err, errDifferent) {
			fmt.Fprintln(out, err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		s.prefix = largest(maps.Keys(final))
	}

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
	followers := startFollowers(ctx, cache, h, s)
	defer followers.wait()
	defer cancel(nil) // the followers end with ctx, if not sooner

	introduce(out, h, s, followers)
	progress := newProgress(out, cache, h)
	if err := progress.show(ctx); err != nil {
		return false, err
	}

	// Everything is in. Those who still read get the rest; those who do not are
	// ended by their policy, and if they have none that strikes, with the cache.
	followers.gather()
	o := outcome{truth: h, final: cache.Snapshot(), cache: cache, followers: followers, behind: progress.behind}
	fmt.Fprintf(out, "all revisions are in; %s may take what is left for them\n", count(cache.Stats().Watchers, "watcher"))
	drain, done := context.WithTimeout(ctx, 30*time.Second+2*s.stall)
	defer done()
	o.shutdown = cache.Shutdown(drain)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	<-replayed
	followers.wait()
	return o.report(ctx, out)
}

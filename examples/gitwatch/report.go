package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watchcache/watchcache"
)

// showProgress shows how far the replay is, until it is at its last revision: as
// a bar on a terminal, and else as a line a second.
func showProgress(ctx context.Context, out io.Writer, cache *watchcache.Cache[string], last uint64) error {
	const width = 40
	terminal := isTerminal(out)
	every := time.Second
	if terminal {
		every = 100 * time.Millisecond
		defer fmt.Fprintln(out)
	}
	for {
		s := cache.Stats()
		line := fmt.Sprintf("revision %d of %d, %d paths, %d watchers, the furthest %d events behind, %d events taken",
			s.Position.Revision, last, s.Objects, s.Watchers, s.MaxLag, s.Deliveries)
		if done := int(width * s.Position.Revision / last); terminal {
			fmt.Fprintf(out, "\r[%s%s] %s\x1b[K", strings.Repeat("#", done), strings.Repeat(" ", width-done), line)
		} else {
			fmt.Fprintln(out, line)
		}
		if s.Position.Revision >= last {
			return nil
		}
		next, cancel := context.WithTimeout(ctx, every)
		err := cache.WaitRevision(next, last)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// report prints what became of everybody, and tells whether all of it is true.
func report(ctx context.Context, out io.Writer, h history, final *watchcache.Snapshot[string], cache *watchcache.Cache[string], fs *followers) (same bool, err error) {
	same = true
	var differences []error
	verdict := func(v string, err error) string {
		if err == nil {
			return v
		}
		same = false
		differences = append(differences, err)
		return "DIFFERENT"
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nwatcher\tit\tevents\tstarts\tresyncs\tstate\tended")
	for _, f := range fs.all {
		v, err := f.check(ctx, h)
		if err != nil && !errors.Is(err, errDifferent) {
			return false, err
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", f.name, f.does, f.events, f.starts, f.resets, verdict(v, err), ending(f.err))
	}
	v, err := checkCache(ctx, h, final, cache)
	if err != nil && !errors.Is(err, errDifferent) {
		return false, err
	}
	fmt.Fprintf(table, "(the cache)\t\t\t\t\t%s\t\n", verdict(v, err))
	table.Flush()
	for _, err := range differences {
		fmt.Fprintln(out, err)
	}
	return same, nil
}

// ending is why a watcher ended, in a table's words.
func ending(err error) string {
	if err == nil {
		return "never started"
	}
	why := strings.TrimPrefix(err.Error(), "watchcache: ")
	switch {
	case errors.Is(err, watchcache.ErrClosed):
		return "drained: " + why
	case errors.Is(err, watchcache.ErrStalled), errors.Is(err, watchcache.ErrLagged):
		return "evicted: " + why
	}
	return why
}

// checkCache compares the cache's own state with the truth: now, and at every
// checkpoint that its history still reaches.
func checkCache(ctx context.Context, h history, final *watchcache.Snapshot[string], cache *watchcache.Cache[string]) (string, error) {
	past := 0
	for revision := cache.Oldest().Revision; revision <= h.last(); revision++ {
		if !h.checkpoint(revision) && revision < h.last() {
			continue
		}
		snapshot := final
		if revision < h.last() {
			var err error
			if snapshot, err = cache.SnapshotAt(revision); err != nil {
				return "", err
			}
			past++
		}
		state := map[string]string{}
		for item := range snapshot.All() {
			state[item.Key] = item.Object
		}
		want, err := h.truth(ctx, revision)
		if err != nil {
			return "", err
		}
		if digest(state) != digest(want) {
			return "", fmt.Errorf("%w: the cache at revision %d", errDifferent, revision)
		}
	}
	return fmt.Sprintf("true at %d, and rewound to %d checkpoints", h.last(), past), nil
}

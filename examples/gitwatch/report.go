package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watchcache/watchcache"
)

// introduce says what will be seen.
func introduce(out io.Writer, h history, s settings, fs *followers) {
	pace := "at full speed"
	if s.duration > 0 {
		pace = fmt.Sprintf("in %v", s.duration)
	}
	fmt.Fprintf(out, "%s\n%s, replayed %s; history keeps %s.\n", h.name(), count(int(h.last()), "revision"), pace, count(s.capacity, "event"))
	fmt.Fprintf(out, "A watcher that has something to take, and takes nothing for %v, is judged by its policy.\n\n", s.stall)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range fs.all {
		fmt.Fprintf(table, "  %s\t%s\n", f.name, f.does)
	}
	table.Flush()
	fmt.Fprintln(out)
}

// outcome is what the report is about.
type outcome struct {
	truth     *truths
	final     *watchcache.Snapshot[string]
	cache     *watchcache.Cache[string]
	followers *followers
	behind    map[string]int
	shutdown  error // nil: all that still read were drained
}

// report prints what became of everybody, and tells whether all of it is true.
func (o *outcome) report(ctx context.Context, out io.Writer) (same bool, err error) {
	var differences []error
	verdict := func(v string, err error) string {
		if err == nil {
			return v
		}
		differences = append(differences, err)
		return "DIFFERENT"
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nwatcher\tevents\tmost lag\twatchers\texpired\tresyncs\tits state is\thow it ended")
	for _, f := range o.followers.all {
		v, err := f.check(ctx, o.truth, f.drained(o.shutdown))
		if err != nil && !errors.Is(err, errDifferent) {
			return false, err
		}
		lag := o.behind[f.name]
		if stalled, ok := errors.AsType[*watchcache.StalledError](f.err); ok {
			lag = max(lag, stalled.Lag)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", f.name, f.events, lag, f.watchers, f.expired, f.resyncs, verdict(v, err), o.ending(f))
	}
	v, err := o.checkCache(ctx)
	if err != nil && !errors.Is(err, errDifferent) {
		return false, err
	}
	fmt.Fprintf(table, "(the cache)\t\t\t\t\t\t%s\t\n", verdict(v, err))
	table.Flush()
	fmt.Fprintln(out)
	for _, err := range differences {
		fmt.Fprintln(out, err)
	}
	if len(differences) == 0 {
		fmt.Fprintf(out, "Every state is the truth, by %s.\n", o.truth.truthIs())
	}
	return len(differences) == 0, nil
}

// ending is why a watcher ended, in a table's words.
func (o *outcome) ending(f *follower) string {
	if f.err == nil {
		return "still there"
	}
	if stalled, ok := errors.AsType[*watchcache.StalledError](f.err); ok {
		idle := stalled.Idle.Round(100 * time.Millisecond)
		switch {
		case stalled.Overrun:
			return "evicted: overrun by history"
		case stalled.Phase == watchcache.PhaseInitial:
			return fmt.Sprintf("evicted: no more of the state for %v", idle)
		}
		return fmt.Sprintf("evicted: took nothing for %v", idle)
	}
	if f.drained(o.shutdown) {
		return "drained, with the cache"
	}
	why := strings.TrimPrefix(f.err.Error(), "watchcache: ")
	if f.refused { // one that had just expired when the cache was shut down
		return "not let in again: " + why
	}
	return why
}

// checkCache compares the cache's own state with the truth: now, and at every
// checkpoint that its history still reaches.
func (o *outcome) checkCache(ctx context.Context) (string, error) {
	past, last := 0, o.truth.last()
	for revision := o.cache.Oldest().Revision; revision <= last; revision++ {
		if !o.truth.checkpoint(revision) && revision < last {
			continue
		}
		snapshot := o.final
		if revision < last {
			var err error
			if snapshot, err = o.cache.SnapshotAt(revision); err != nil {
				return "", err
			}
			past++
		}
		state := map[string]string{}
		for item := range snapshot.All() {
			state[item.Key] = item.Object
		}
		want, err := o.truth.at(ctx, revision)
		if err != nil {
			return "", err
		}
		if digest(state) != digest(want) {
			return "", fmt.Errorf("%w: the cache at revision %d", errDifferent, revision)
		}
	}
	verdict := fmt.Sprintf("true at %d", last)
	if past > 0 {
		verdict += "; by SnapshotAt, at " + count(past, "checkpoint")
	}
	return verdict, nil
}

// count says how many of something, whose name takes an s, there are.
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

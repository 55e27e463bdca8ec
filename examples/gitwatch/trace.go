package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watchcache/watchcache"
)

// trace is a history out of a file.
type trace struct {
	file     string
	revision []watchcache.Commit[string] // by revision, from 1
	known    map[uint64]checkpoint
}

// checkpoint is what is known of the state at a revision.
type checkpoint struct {
	paths  int
	digest string
}

func openTrace(file string) (*trace, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var in io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	t := &trace{file: file}
	if t.revision, err = parseTrace(in); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(t.revision) == 0 {
		return nil, fmt.Errorf("%s: no revision", file)
	}
	beside := strings.TrimSuffix(strings.TrimSuffix(file, ".gz"), filepath.Ext(strings.TrimSuffix(file, ".gz"))) + ".checkpoints.tsv"
	checkpoints, err := os.Open(beside)
	if err != nil {
		return nil, fmt.Errorf("no truth for the trace: %w", err)
	}
	defer checkpoints.Close()
	if t.known, err = parseCheckpoints(checkpoints); err != nil {
		return nil, fmt.Errorf("%s: %w", beside, err)
	}
	if newest := slices.Max(slices.Collect(maps.Keys(t.known))); newest > t.last() {
		return nil, fmt.Errorf("%s: revision %d is beyond the trace's last, %d", beside, newest, t.last())
	}
	return t, nil
}

func parseTrace(in io.Reader) (commits []watchcache.Commit[string], err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Split(lines.Text(), "\t")
		malformed := fmt.Errorf("line %d: malformed: %q", n, lines.Text())
		switch {
		case len(fields) == 3 && fields[0] == "P" && fields[1] != "" && len(commits) > 0:
			last := &commits[len(commits)-1]
			last.Changes = append(last.Changes, watchcache.Change[string]{Key: fields[1], Object: fields[2]})
		case len(fields) == 2 && fields[0] == "D" && fields[1] != "" && len(commits) > 0:
			last := &commits[len(commits)-1]
			last.Changes = append(last.Changes, watchcache.Change[string]{Key: fields[1], Delete: true})
		case len(fields) == 2:
			revision, err := strconv.ParseUint(fields[0], 10, 64)
			seconds, err2 := strconv.ParseInt(fields[1], 10, 64)
			if errors.Join(err, err2) != nil {
				return nil, malformed
			}
			if revision != uint64(len(commits)+1) {
				return nil, fmt.Errorf("line %d: revision %d does not follow %d", n, revision, len(commits))
			}
			commits = append(commits, watchcache.Commit[string]{Revision: revision, Time: time.Unix(seconds, 0)})
		default:
			return nil, malformed
		}
	}
	return commits, lines.Err()
}

func parseCheckpoints(in io.Reader) (map[uint64]checkpoint, error) {
	known := map[uint64]checkpoint{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: malformed: %q", n, lines.Text())
		}
		revision, err := strconv.ParseUint(fields[0], 10, 64)
		paths, err2 := strconv.Atoi(fields[1])
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		known[revision] = checkpoint{paths, fields[2]}
	}
	if len(known) == 0 {
		return nil, errors.New("no checkpoint")
	}
	return known, lines.Err()
}

func (t *trace) name() string    { return t.file }
func (t *trace) truthIs() string { return "its " + count(len(t.known), "checkpoint") }
func (t *trace) last() uint64    { return uint64(len(t.revision)) }

func (t *trace) checkpoint(revision uint64) bool {
	_, ok := t.known[revision]
	return ok
}

func (t *trace) commits(_ context.Context, after uint64) iter.Seq2[watchcache.Commit[string], error] {
	return func(yield func(watchcache.Commit[string], error) bool) {
		for _, c := range t.revision[min(after, t.last()):] {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// truth replays the trace into a map, and holds it against every checkpoint on
// the way.
func (t *trace) truth(_ context.Context, revision uint64) (map[string]string, error) {
	state := map[string]string{}
	for _, c := range t.revision[:revision] {
		for _, change := range c.Changes {
			if change.Delete {
				delete(state, change.Key)
			} else {
				state[change.Key] = change.Object
			}
		}
		want, ok := t.known[c.Revision]
		if !ok {
			continue
		}
		if got := (checkpoint{len(state), digest(state)}); got != want {
			return nil, fmt.Errorf("%w: the trace and its checkpoint contradict each other at revision %d: %d paths, %s; %d paths, %s",
				errDifferent, c.Revision, got.paths, got.digest, want.paths, want.digest)
		}
	}
	return state, nil
}

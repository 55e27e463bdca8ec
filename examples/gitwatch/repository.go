package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/watchcache/watchcache"
)

// repository is a git repository's first-parent history: revision n is its n-th
// commit.
type repository struct {
	dir string
	ids []string // of the commits

	mu    sync.Mutex
	trees map[uint64]map[string]string // that git was asked for
}

func openRepository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{dir: dir, trees: map[uint64]map[string]string{}}
	list, err := r.git(ctx, "rev-list", "--first-parent", "--reverse", "HEAD")
	if err != nil {
		return nil, err
	}
	if r.ids = strings.Fields(string(list)); len(r.ids) == 0 {
		return nil, errors.New("the repository has no commit")
	}
	_, err = r.truth(ctx, r.last())
	return r, err
}

func (r *repository) name() string { return r.dir }
func (r *repository) last() uint64 { return uint64(len(r.ids)) }

// checkpoint picks eight revisions: git is asked for each.
func (r *repository) checkpoint(revision uint64) bool { return revision%(r.last()/8+1) == 0 }

func (r *repository) largestDirectory() string { return largest(maps.Keys(r.trees[r.last()])) }

func (r *repository) command(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.dir}, args...)...)
	failure := new(bytes.Buffer)
	cmd.Stderr = failure
	return cmd, failure
}

func (r *repository) git(ctx context.Context, args ...string) ([]byte, error) {
	cmd, failure := r.command(ctx, args...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(failure.Bytes()))
	}
	return out, nil
}

// truth asks git for the tree of a revision, once.
func (r *repository) truth(ctx context.Context, revision uint64) (map[string]string, error) {
	if revision == 0 {
		return map[string]string{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if tree, ok := r.trees[revision]; ok {
		return maps.Clone(tree), nil
	}
	out, err := r.git(ctx, "ls-tree", "-r", "-z", "--full-tree", r.ids[revision-1])
	if err != nil {
		return nil, err
	}
	state := map[string]string{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		if meta, path, ok := strings.Cut(line, "\t"); ok {
			fields := strings.Fields(meta) // mode, type, hash
			state[path] = fields[len(fields)-1]
		}
	}
	r.trees[revision] = state
	return maps.Clone(state), nil
}

// commits reads git log, which tells each commit's difference to its first parent.
func (r *repository) commits(ctx context.Context, after uint64) iter.Seq2[watchcache.Commit[string], error] {
	return func(yield func(watchcache.Commit[string], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd, failure := r.command(ctx, "-c", "log.showRoot=true", "log", "--first-parent", "--diff-merges=first-parent", "--reverse",
			"--raw", "-z", "--no-abbrev", "--no-renames", "--format=commit %ct", r.ids[len(r.ids)-1])
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			yield(watchcache.Commit[string]{}, err)
			return
		}
		stopped := false
		err = parseLog(out, func(c watchcache.Commit[string]) bool {
			stopped = c.Revision > after && !yield(c, nil)
			return !stopped
		})
		if stopped {
			cancel()
			cmd.Wait()
			return
		}
		if e := cmd.Wait(); err == nil && e != nil {
			err = fmt.Errorf("git log: %w: %s", e, bytes.TrimSpace(failure.Bytes()))
		}
		if err != nil {
			yield(watchcache.Commit[string]{}, err)
		}
	}
}

// parseLog reads the output of git log -z --raw with the format "commit TIME": a
// run of strings that end in NUL. A commit's is followed by two for each change:
// ":MODE MODE HASH HASH STATUS" and the path.
func parseLog(in io.Reader, each func(watchcache.Commit[string]) bool) error {
	var c watchcache.Commit[string]
	r := bufio.NewReader(in)
	for {
		word, err := r.ReadString(0)
		if err != nil && (err != io.EOF || word != "") {
			return fmt.Errorf("git log: cut short after revision %d: %w", c.Revision, err)
		}
		end := err == io.EOF
		word = strings.Trim(word, "\n\x00")
		switch seconds, isCommit := strings.CutPrefix(word, "commit "); {
		case end || isCommit:
			if c.Revision > 0 && !each(c) || end {
				return nil
			}
			unix, err := strconv.ParseInt(seconds, 10, 64)
			if err != nil {
				return fmt.Errorf("git log: revision %d: malformed time %q", c.Revision+1, seconds)
			}
			c = watchcache.Commit[string]{Revision: c.Revision + 1, Time: time.Unix(unix, 0)}
		case strings.HasPrefix(word, ":"):
			fields := strings.Fields(word)
			path, err := r.ReadString(0)
			if err != nil || len(fields) != 5 {
				return fmt.Errorf("git log: revision %d: malformed change %q", c.Revision, word)
			}
			path = strings.TrimSuffix(path, "\x00")
			c.Changes = append(c.Changes, watchcache.Change[string]{Key: path, Object: fields[3], Delete: fields[4] == "D"})
		case word != "":
			return fmt.Errorf("git log: revision %d: unexpected %q", c.Revision, word)
		}
	}
}

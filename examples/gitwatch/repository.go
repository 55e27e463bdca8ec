package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/watchcache/watchcache"
)

// repository is a git repository's first-parent history: revision n is its n-th
// commit.
type repository struct {
	dir string
	top string   // its own directory, for people
	ids []string // of the commits
}

func openRepository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{dir: dir}
	directory, err := r.git(ctx, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return nil, fmt.Errorf("%w\n(-repo names a repository, -trace a file to replay in its place)", err)
	}
	r.top = strings.TrimSuffix(string(bytes.TrimSuffix(directory, []byte("\n"))), string(filepath.Separator)+".git")
	if _, err := r.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return nil, fmt.Errorf("%s: the repository has no commit", r.top)
	}
	list, err := r.git(ctx, "rev-list", "--first-parent", "--reverse", "HEAD")
	if err != nil {
		return nil, err
	}
	r.ids = strings.Fields(string(list))
	return r, nil
}

func (r *repository) name() string    { return r.top }
func (r *repository) truthIs() string { return "git ls-tree" }
func (r *repository) last() uint64    { return uint64(len(r.ids)) }

// checkpoint picks eight revisions: git is asked for each.
func (r *repository) checkpoint(revision uint64) bool {
	return revision > 0 && revision%(r.last()/8+1) == 0
}

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
		return nil, gitError(args[0], err, failure)
	}
	return out, nil
}

// gitError says what git said, and if it said nothing, why.
func gitError(command string, err error, failure *bytes.Buffer) error {
	if said := bytes.TrimSpace(failure.Bytes()); len(said) > 0 {
		return fmt.Errorf("git %s: %s", command, said)
	}
	return fmt.Errorf("git %s: %w", command, err)
}

// truth asks git for the tree of a revision.
func (r *repository) truth(ctx context.Context, revision uint64) (map[string]string, error) {
	if revision == 0 {
		return map[string]string{}, nil
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
	return state, nil
}

// commits reads git log, which tells each commit's difference to its first parent.
func (r *repository) commits(ctx context.Context, after uint64) iter.Seq2[watchcache.Commit[string], error] {
	return func(yield func(watchcache.Commit[string], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// What a user's configuration could change is set here.
		cmd, failure := r.command(ctx, "-c", "log.showRoot=true", "log", "--first-parent", "--diff-merges=first-parent", "--reverse",
			"--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=none", "--no-relative", "--no-show-signature", "--no-color",
			"--format=commit %ct", r.ids[len(r.ids)-1])
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
			err = gitError("log", e, failure)
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
			if err != nil || len(fields) != 5 || path == "\x00" || c.Revision == 0 {
				return fmt.Errorf("git log: revision %d: malformed change %q", c.Revision, word)
			}
			path = strings.TrimSuffix(path, "\x00")
			c.Changes = append(c.Changes, watchcache.Change[string]{Key: path, Object: fields[3], Delete: fields[4] == "D"})
		case word != "":
			return fmt.Errorf("git log: revision %d: unexpected %q", c.Revision, word)
		}
	}
}

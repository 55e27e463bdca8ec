package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watchcache/watchcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var fast = settings{stall: 50 * time.Millisecond, duration: 200 * time.Millisecond, capacity: 1000}

// madeRepository has a merge, a rename, a deletion, a mode change, and a path that
// git would quote.
func madeRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("dir/a", "1")
	write("dir/b", "1")
	write("grüße \"quoted\"\tand tabbed", "1")
	git("add", "-A")
	git("commit", "-qm", "one")
	git("commit", "-q", "--allow-empty", "-m", "nothing")
	git("checkout", "-qb", "side")
	write("side", "1")
	git("add", "-A")
	git("commit", "-qm", "aside")
	git("checkout", "-q", "main")
	write("dir/a", "2")
	git("mv", "dir/b", "dir/renamed")
	git("add", "-A")
	git("commit", "-qm", "two")
	git("merge", "-q", "--no-ff", "-m", "merge", "side")
	git("update-index", "--chmod=+x", "dir/a")
	git("rm", "-q", "side")
	git("commit", "-qm", "three")
	return dir
}

func TestARepositoryIsReplayedTruly(t *testing.T) {
	s := fast
	s.repo = madeRepository(t)
	var out bytes.Buffer
	same, err := run(t.Context(), s, &out)
	if err != nil || !same {
		t.Fatalf("%v, %v:\n%s", same, err, &out)
	}
	for _, want := range []string{"5 revisions", "selects dir/", "evicted: watcher stalled", "evicted: watcher lagged", "true at 5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestWhatCannotBeReplayedIsAnError(t *testing.T) {
	for name, s := range map[string]settings{
		"no repository": {repo: t.TempDir()}, "no trace": {trace: "missing"}, "no such directory": {repo: "/nonexistent"},
	} {
		s.stall, s.capacity = time.Second, 10
		if _, err := run(t.Context(), s, new(bytes.Buffer)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

const smallTrace = "1\t1000\nP\tpkg/a\tx1\nP\tb\ty1\n2\t1001\n3\t1002\nD\tb\nP\tpkg/a\tx2\n"

func writeTrace(t *testing.T, checkpoints string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "small.tsv")
	err := errors.Join(os.WriteFile(file, []byte(smallTrace), 0o644), os.WriteFile(filepath.Join(dir, "small.checkpoints.tsv"), []byte(checkpoints), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestATraceIsHeldAgainstItsCheckpoints(t *testing.T) {
	one, three := digest(map[string]string{"pkg/a": "x1", "b": "y1"}), digest(map[string]string{"pkg/a": "x2"})
	s := fast
	s.trace = writeTrace(t, "1\t2\t"+one+"\n3\t1\t"+three+"\n")
	var out bytes.Buffer
	if same, err := run(t.Context(), s, &out); err != nil || !same {
		t.Errorf("%v, %v:\n%s", same, err, &out)
	}
	s.trace = writeTrace(t, "1\t2\t"+one+"\n3\t1\t"+one+"\n")
	out.Reset()
	if same, err := run(t.Context(), s, &out); err != nil || same || !strings.Contains(out.String(), "not the truth") {
		t.Errorf("with a checkpoint that is wrong: %v, %v:\n%s", same, err, &out)
	}
}

func TestMalformedInputIsRefused(t *testing.T) {
	for _, text := range []string{"P\ta\tb\n", "1\tx\n", "2\t5\n", "1\t5\nP\ta\n", "1\t5\nX\ta\tb\n"} {
		if _, err := parseTrace(strings.NewReader(text)); err == nil {
			t.Errorf("trace %q was accepted", text)
		}
	}
	for _, text := range []string{"commit x\x00", "commit 5\x00\n:1 2 3\x00a\x00", "commit 5\x00:1 2 3 4 M\x00a", "junk\x00", "commit 5"} {
		if err := parseLog(strings.NewReader(text), func(watchcache.Commit[string]) bool { return true }); err == nil {
			t.Errorf("log %q was accepted", text)
		}
	}
	if _, err := parseCheckpoints(strings.NewReader("")); err == nil {
		t.Error("no checkpoints were accepted")
	}
}

func TestTheDigestIsThatOfTheTrace(t *testing.T) {
	h, err := openTrace("../../testdata/apiserver-history.tsv.gz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.truth(context.Background(), h.last()); err != nil { // checks all on the way
		t.Error(err)
	}
	if h.largestDirectory() != "pkg/" {
		t.Errorf("the largest directory is %q", h.largestDirectory())
	}
}

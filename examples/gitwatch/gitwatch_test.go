package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/watchcache/watchcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ran is the command with its arguments, in a bubble, where waiting takes no time.
func ran(t *testing.T, args ...string) (status int, out, failures string) {
	t.Helper()
	var o, f bytes.Buffer
	synctest.Test(t, func(t *testing.T) { status = command(t.Context(), args, &o, &f) })
	return status, o.String(), f.String()
}

// wantTrue fails the test unless the command found everything true, and said all
// of these.
func wantTrue(t *testing.T, args []string, said ...string) {
	t.Helper()
	status, out, failures := ran(t, args...)
	if status != exitTrue || failures != "" {
		t.Errorf("%q: exit status %d, want 0:\n%s%s", args, status, failures, out)
	}
	for _, want := range append(said, "Every state is the truth") {
		if !strings.Contains(out, want) {
			t.Errorf("%q did not say %q:\n%s", args, want, out)
		}
	}
}

func TestARepositoryIsReplayedTruly(t *testing.T) {
	wantTrue(t, []string{"-repo", madeRepository(t)},
		"7 revisions, replayed in 4s",
		`begin with "dir/"`,
		"evicted: no more of the state for 2s",
		"evicted: took nothing for 2s",
		"true at 7",
		"by git ls-tree",
	)
}

func TestHistoriesOfEveryShapeAreReplayedTruly(t *testing.T) {
	made := madeRepository(t)
	shallow := newTestRepository(t)
	shallow.git("fetch", "-q", "--update-head-ok", "--depth=3", "file://"+filepath.ToSlash(made), "main:main")
	one := newTestRepository(t)
	one.write("only", "1")
	one.commit("one path, in one commit")
	empty := newTestRepository(t)
	empty.commit("a commit without any path")
	bare := newTestRepository(t, "--bare")
	bare.git("fetch", "-q", made, "main:main")

	for _, args := range [][]string{
		{"-repo", shallow.dir}, {"-repo", one.dir}, {"-repo", empty.dir}, {"-repo", bare.dir},
		{"-repo", filepath.Join(made, "dir")},
		{"-repo", made, "-duration", "0"},
		{"-repo", made, "-rate", "0.5", "-stall", "1s"},
		{"-repo", made, "-capacity", "1"},
		{"-repo", made, "-prefix", "nothing begins like this"},
		{"-trace", bigTrace, "-rate", "200"},
		{"-trace", bigTrace, "-duration", "0", "-capacity", "1000"},
	} {
		t.Run(strings.Join(args[2:], " "), func(t *testing.T) { wantTrue(t, args) })
	}
}

// TestConfigurationOfTheUserDoesNotMatter: what git log shows depends on much of
// it.
func TestConfigurationOfTheUserDoesNotMatter(t *testing.T) {
	made := &testRepository{t, madeRepository(t)}
	for _, setting := range []string{
		"log.showRoot=false", "log.diffMerges=combined", "diff.renames=copies", "diff.ignoreSubmodules=all", "diff.relative=true",
		"log.showSignature=true", "color.ui=always", "core.quotePath=true", "format.pretty=oneline", "diff.noprefix=true",
	} {
		name, value, _ := strings.Cut(setting, "=")
		made.git("config", name, value)
	}
	wantTrue(t, []string{"-repo", filepath.Join(made.dir, "dir")}, "7 revisions")
}

func TestAShortHistoryOverrunsAndExpires(t *testing.T) {
	wantTrue(t, []string{"-trace", bigTrace, "-capacity", "200"}, "evicted: overrun by history", "true at 5229")
}

func TestADifferenceIsExitStatus1(t *testing.T) {
	one, three := digest(map[string]string{"pkg/a": "x1", "b": "y1"}), digest(map[string]string{"pkg/a": "x2"})
	good := writeTrace(t, "1\t2\t"+one+"\n3\t1\t"+three+"\n")
	wantTrue(t, []string{"-trace", good}, "by its 2 checkpoints", "true at 3 and at 2 checkpoints")
	for _, args := range [][]string{
		{"-trace", writeTrace(t, "1\t2\t"+one+"\n3\t1\t"+one+"\n")},
		{"-trace", writeTrace(t, "1\t2\t"+three+"\n"), "-prefix", "pkg/"},
	} {
		status, out, failures := ran(t, args...)
		if status != exitDifferent || !strings.Contains(out, "not the truth") || strings.Contains(out, "Every state") {
			t.Errorf("%q, with a checkpoint that is wrong: exit status %d, want 1:\n%s%s", args, status, failures, out)
		}
	}
}

// lying is a history whose truth is another than what its commits make, as if the
// cache or a watcher had lost something.
type lying struct {
	history
	about uint64
}

func (l lying) truth(ctx context.Context, revision uint64) (map[string]string, error) {
	state, err := l.history.truth(ctx, revision)
	if revision == l.about {
		state["lost"] = "z"
	}
	return state, err
}

func TestEveryFollowerAndTheCacheAreHeldAgainstTheTruth(t *testing.T) {
	h, err := openTrace(writeTrace(t, "1\t2\t"+digest(map[string]string{"pkg/a": "x1", "b": "y1"})+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for about, told := range map[uint64][]string{
		1: {"fast passed the checkpoint at revision 1", "slow passed", "resuming passed", "the cache at revision 1"},
		3: {"fast at position gitwatch:3", "slow at position", "resuming at position", "prefix at position", "the cache at revision 3"},
	} {
		t.Run(fmt.Sprint("about ", about), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				s, err := parseSettings([]string{"-prefix", "lost", "-duration", "9s"}, &out)
				if err != nil {
					t.Fatal(err)
				}
				same, err := replayAndCheck(t.Context(), s, newTruths(lying{h, about}), &out)
				if same || err != nil {
					t.Errorf("same %v, error %v, want a difference", same, err)
				}
				for _, want := range told {
					if !strings.Contains(out.String(), "not the truth: "+want) {
						t.Errorf("it did not say %q:\n%s", want, &out)
					}
				}
			})
		})
	}
}

func TestWhatCannotBeReplayedIsExitStatus2(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "alone.tsv")
	if err := os.WriteFile(alone, []byte(smallTrace), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		said string
	}{
		{[]string{"-repo", t.TempDir()}, "not a git repository"},
		{[]string{"-repo", "/nonexistent"}, "/nonexistent"},
		{[]string{"-repo", newTestRepository(t).dir}, "no commit"},
		{[]string{"-trace", "missing"}, "missing"},
		{[]string{"-trace", alone}, "no truth for the trace"},
		{[]string{"-trace", alone, "-repo", "."}, "-repo and -trace"},
		{[]string{"-rate", "1", "-duration", "1s"}, "-duration and -rate"},
		{[]string{"-rate", "0"}, "-rate"},
		{[]string{"-stall", "0"}, "-stall"},
		{[]string{"-duration", "-1s"}, "-duration"},
		{[]string{"-capacity", "0"}, "-capacity"},
		{[]string{"-unknown"}, "-unknown"},
		{[]string{"extra"}, "extra"},
	} {
		status, out, failures := ran(t, c.args...)
		if status != exitFailed || !strings.Contains(failures, c.said) {
			t.Errorf("%q: exit status %d, want 2 and %q:\n%s%s", c.args, status, c.said, failures, out)
		}
	}
	if status, _, usage := ran(t, "-h"); status != exitTrue || !strings.Contains(usage, "-stall") {
		t.Errorf("-h: exit status %d, want 0 and the flags:\n%s", status, usage)
	}
}

func TestAnInterruptEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		var out, failures bytes.Buffer
		status := command(ctx, []string{"-trace", bigTrace}, &out, &failures)
		if status != exitFailed || !strings.Contains(failures.String(), "interrupted") {
			t.Errorf("exit status %d, want 2:\n%s", status, &failures)
		}
	})
}

func TestTheBarFitsATerminal(t *testing.T) {
	cache, err := watchcache.New(watchcache.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true, cache: cache, last: 99_999, behind: map[string]int{}}
	s := cache.Stats()
	s.Position.Revision, s.Objects, s.Watchers, s.MaxLag = 49_999, 9_999, 7, 99_999
	p.print(s)
	want := "\r[" + strings.Repeat("#", 9) + strings.Repeat(" ", 11) + "] 49999 of 99999: 9999 paths, 7 watchers, largest lag 99999\x1b[K"
	if out.String() != want || len(want) > 80+len("\r\x1b[K") {
		t.Errorf("the bar is %q, want %q", &out, want)
	}
}
